"""Refuses pictures for a model that does not see, and offers an installed one that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.chat.requests.prompts import PromptBuilder
from app.domain.model_ref import Local, ModelRef, local_path
from app.domain.parts import ImagePart, Part, images
from app.state.attachments import AttachmentsState
from app.state.chat import Notice, State
from app.state.faults import picture_words
from app.system.translation import sentences, tr
from app.system.worker import BackgroundWorker
from engine import Fault, FaultKind, inspect_model

NOTICE = "sight"  # kind of the notice about pictures for a model that does not see
_MOST_MODELS = 24  # that are looked at for one that sees


class Sight:
    """Lives on the GUI thread."""

    def __init__(
        self,
        state: State,
        prompts: PromptBuilder,
        choose: Callable[[ModelRef], None],
        user_files: BackgroundWorker,
        reclaimable: Callable[[], int],
        get: Callable[[], object],
        shown: AttachmentsState,
    ) -> None:
        """`choose` lets a model answer in the shown chat; `reclaimable` are bytes of memory that are
        free once the loaded model is not; `get` shows the models that can be downloaded.
        """
        self._state, self._prompts, self._choose = state, prompts, choose
        self._user_files, self._reclaimable, self._get = user_files, reclaimable, get
        self._offered: Path | None = None
        self._shown, self._looks = shown, 0
        self._warned: tuple[object, ...] = ()  # what the notice was set for: chat, pictures, sees
        for signal in (shown.changed, state.model_changed, state.chat_model_changed):
            signal.connect(self._warn)
        state.conversation_changed.connect(self._warn)

    def _warn(self, *_: object) -> None:
        """Say so before a message is written, once its first picture is attached."""
        chat = self._state.current
        attached = self._shown.of(chat)
        pictures = [each.part for each in attached if isinstance(each.part, ImagePart)]
        asked = (chat, *(each.sha256 for each in pictures), self._prompts.sees(chat))
        if asked == self._warned:
            return
        had, self._warned = len(self._warned) > 2, asked
        if pictures or had:
            self.refuses(chat, pictures)

    def refuses(self, chat: int | None, parts: Sequence[Part]) -> bool:
        """Whether a message has pictures and its model is known not to see; a notice says so."""
        self._offered = None
        if not images(parts) or self._prompts.sees(chat):
            self._state.set_notice(NOTICE, None)
            return False
        model, loaded = self._state.settings(chat).model, self._state.model.loaded
        name = self._state.model_name(model) if model else self._state.model.name
        reason = loaded.blind.reason.value if loaded is not None and loaded.blind else ""
        words = picture_words(Fault(FaultKind.NO_SIGHT, reason), name)
        assert words is not None
        refused = Notice(*words)
        self._state.set_notice(NOTICE, refused)
        own = local_path(model) or self._state.model.path
        self._look(refused, own, keep=refused.remedy if reason else "")
        return True

    def use_offered(self) -> None:
        """Let the model of the notice answer in the shown chat, or show those to download."""
        self._state.set_notice(NOTICE, None)
        path, self._offered = self._offered, None
        if path is not None:
            self._choose(Local(path))
        else:
            self._get()

    def _look(self, refused: Notice, own: Path | None, *, keep: str) -> None:
        """Look for a model that sees and fits in memory, and name it in the notice.

        `keep` is what can be done for the model itself, which is said before.
        """
        others = [each for each in self._state.installed if not each.bad and each.path != own]
        names = {each.path: each.name for each in others[:_MOST_MODELS]}

        spare = self._reclaimable()
        self._looks += 1
        look_number = self._looks

        def look() -> Path | None:
            return next((path for path in names if _is_seeing(path, spare)), None)

        def looked(found: Path | None) -> None:
            if look_number != self._looks or self._state.notices.get(NOTICE) != refused:
                return
            if found is None:
                action = tr("Get one that can")
                self._state.set_notice(NOTICE, replace(refused, action=action))
                return
            self._offered = found
            remedy = sentences(keep, tr("{model} on this computer can.", model=names[found]))
            action = tr("Use {name}", name=names[found])
            self._state.set_notice(NOTICE, Notice(refused.sentence, remedy, action))

        self._user_files.run(look, looked)


def _is_seeing(path: Path, reclaimable: int) -> bool:
    """Whether a model takes pictures, and fits in memory."""
    facts = inspect_model(path, reclaimable=reclaimable)
    fits = facts.memory_bytes <= facts.available_bytes
    return facts.encoder is not None and not facts.problem and fits
