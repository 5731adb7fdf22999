"""Refuses pictures for a model that does not see, and offers an installed one that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from app.chat.requests.prompts import PromptBuilder
from app.domain.model_ref import Local, ModelRef, local_path
from app.domain.parts import Part, images
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
    ) -> None:
        """`choose` lets a model answer in the shown chat; `reclaimable` are bytes of memory that are
        free once the loaded model is not.
        """
        self._state, self._prompts, self._choose = state, prompts, choose
        self._user_files, self._reclaimable = user_files, reclaimable
        self._offered: Path | None = None

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
        """Let the model of the notice answer in the shown chat."""
        self._state.set_notice(NOTICE, None)
        path, self._offered = self._offered, None
        if path is not None:
            self._choose(Local(path))

    def _look(self, refused: Notice, own: Path | None, *, keep: str) -> None:
        """Look for a model that sees and fits in memory, and name it in the notice.

        `keep` is what can be done for the model itself, which is said before.
        """
        others = [each for each in self._state.installed if not each.bad and each.path != own]
        names = {each.path: each.name for each in others[:_MOST_MODELS]}

        spare = self._reclaimable()

        def look() -> Path | None:
            return next((path for path in names if _is_seeing(path, spare)), None)

        def looked(found: Path | None) -> None:
            if found is None or self._state.notices.get(NOTICE) != refused:
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
