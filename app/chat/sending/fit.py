"""Fit: whether the next whole prompt of the shown chat fits in the context, and what helps if not.

The prompt is counted by the engine when files are attached, a long text is typed, or an earlier
file may be left out; never during an answer, unless the user wants to send. Between two counts no
text is taken to have more tokens than bytes. Of an engine elsewhere it is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from app.chat.answering.model_use import ModelUse
from app.chat.documents.part_cuts import about_parts
from app.chat.documents.part_sizes import TASK, USUAL_CONTEXT, long_cost, part_sizes
from app.chat.requests.context_room import answer_room, bytes_per_token
from app.chat.requests.measured_speed import ANSWERS, Speed, speed_of
from app.chat.requests.prompts import PromptBuilder, memory_start
from app.domain.answer_details import AnswerRecord
from app.domain.documents import Reads
from app.domain.message import Message, MessageState
from app.domain.model_ref import Local, ModelRef, Remote
from app.domain.parts import (
    FileOrImage,
    FilePart,
    ImagePart,
    Parts,
    TextPart,
    files_and_images,
    prompt_text,
    without_files_and_images,
)
from app.engines.client import EngineClient
from app.engines.run import RequestFailed, start
from app.library.service import Library
from app.settings.model_settings import ModelDefaults
from app.state.attachments import (
    Attachment,
    AttachmentsState,
    Editing,
    FitEstimate,
    LongerContext,
    OtherModel,
    Place,
)
from app.state.chat import ModelPhase, Notice, State
from app.store.writer import StoreQueue
from app.system.translation import number, tr
from app.system.worker import BackgroundWorker
from engine import (
    DEFAULT_CACHE,
    ContextPolicy,
    CountTokens,
    Detail,
    FaultKind,
    ModelFacts,
    Role,
    TemplateApplied,
    TokensCounted,
    Turn,
    inspect_model,
)

NOTICE = "long"  # kind of the notice that a message is still being counted
_DELAY_MILLISECONDS = 150
_PASSAGES_SHARE, _PASSAGES_TOKENS = 3, 2048  # of the free context, passages that will be found
_MARKUP = 32  # tokens of the template around a turn, at most
_MOST_OF_IMAGE = 4096  # tokens, unless it was counted
_STEP = 1024  # a longer context is a multiple of it
_MOST_MODELS = 12  # that are looked at for one that can read the prompt

_FileKey = tuple[object, str, str, object, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a prompt depends on, beside the text that is typed."""

    place: Place  # where it is written
    chat: int | None
    branch: tuple[int, ...]  # the messages before it
    files: tuple[FileOrImage, ...]
    model: object  # the load, or the model of an engine elsewhere
    settings: object
    context: int
    exact: bool  # the tokenizer is here


@dataclass(frozen=True, slots=True)
class _Counted:
    """The prompt as it was counted last."""

    asked: _Asked
    typed: str
    tokens: int = 0
    cached: int = 0
    seconds: float = 0.0
    forgotten: tuple[str, ...] = ()
    failed: bool = False  # it could not be counted: nothing is refused


class Fit:
    """Counts one prompt at a time; lives on the GUI thread."""

    def __init__(
        self,
        state: State,
        shown: AttachmentsState,
        engine: EngineClient,
        prompts: PromptBuilder,
        library: Library,
        model_use: ModelUse,
        user_files: BackgroundWorker,
        store_queue: StoreQueue,
        report: Callable[[Exception], None],
        parent: QObject,
    ) -> None:
        """`report` is called with an unexpected exception."""
        self._state, self._shown, self._engine, self._prompts = state, shown, engine, prompts
        self._library, self._model_use, self._user_files = library, model_use, user_files
        self._store_queue = store_queue
        self._speeds: dict[str, Speed | None] = {}  # by the name of a model; None: is being read
        self._report = report
        self._typed = ""
        self._edited: tuple[Editing, Parts] | None = None  # a refused edit, shown until it is sent
        # The user has sent it before it was counted.
        self._to_send: tuple[_Asked, str] | None = None
        self._waiting: _Counted | None = None  # the last one that was sent from the outbox
        self._wanted = False  # the user wants to send: it is counted during answers too
        self._counting = self._answering = False
        self._counted: _Counted | None = None
        # Bytes of a token by the answers of the shown chat, and of which answers.
        self._measured = tuple[tuple[int, int], ...](), bytes_per_token(())
        self._file_tokens: dict[_FileKey, int] = {}
        self._counting_files = False
        self._ways: tuple[object, int] | None = None  # that were looked for: the load, and tokens
        self._longer: LongerContext | None = None
        self._models: tuple[OtherModel, ...] = ()
        self._timer = QTimer(parent, singleShot=True, interval=_DELAY_MILLISECONDS)
        self._timer.timeout.connect(self._update)
        for signal in (
            shown.changed,
            state.conversation_changed,
            state.model_changed,
            state.message_added,
            state.settings_changed,
        ):
            signal.connect(self._later)
        state.generations_changed.connect(self._on_generations)

    # --- intents --------------------------------------------------------------------------------

    def type(self, text: str) -> None:
        """The text of the next message is this now."""
        self._typed = text
        self._later()

    def refuses(self, parts: Parts, edited: Editing | None = None) -> bool:
        """Whether a message of the shown chat does not fit; the state, or a notice, says so.

        `parts` are its files and what was typed; `edited` is the editor it was typed in.
        """
        self._state.set_notice(NOTICE, None)
        self._to_send = None
        if edited is None:
            self._typed = prompt_text(without_files_and_images(parts))
        self._edited = (edited, parts) if edited else None
        if self._refuses():
            return True
        self._edited = None
        return False

    def _refuses(self) -> bool:
        asked, typed = self._asked()
        if asked is None or not asked.context:
            return False
        most = self._most_tokens(asked, typed)
        if most + answer_room(asked.context) <= asked.context:
            return False
        counted = self._counted
        if counted is not None and counted.asked == asked:
            others = counted.tokens - _size(counted.typed)  # without a typed text, at least
            never_fits = others + answer_room(asked.context) > asked.context
            if counted.typed == typed or never_fits:
                self._show()
                fit = self._shown.fit
                if fit is None or fit.fits:
                    return False
                self._shown.set_fit(fit, refused=True)
                return True
        self._wanted, self._to_send = True, (asked, typed)
        self._update()
        sentence = tr("The length of this message is still being counted.")
        self._state.set_notice(NOTICE, Notice(sentence, tr("It is sent as soon as that is done.")))
        return True

    def refuses_waiting(self, chat: int, parts: Parts, again: Callable[[], object]) -> bool:
        """Whether a message that has waited for an answer does not fit; a notice says so.

        `again` is called to send it once it is counted. It is counted again, because the answer is
        a part of the prompt now.
        """
        typed = prompt_text(without_files_and_images(parts))
        before = self._state.branches.get(chat, ())
        asked = self._asked_at(chat, chat, before, files_and_images(parts), typed)
        if asked is None or not asked.context:
            return False
        if self._most_tokens(asked, typed) + answer_room(asked.context) <= asked.context:
            return False
        counted = self._waiting
        if not asked.exact:
            counted = self._estimated(asked, typed)
        if counted is None or (counted.asked, counted.typed) != (asked, typed):
            start(self._count_waiting(asked, typed, again), self._on_fault)
            return True
        if counted.failed or counted.tokens + answer_room(asked.context) <= asked.context:
            return False
        if chat == self._state.current:
            model = self._state.settings(chat).model
            sentence = tr(
                "The waiting message has {tokens} tokens with the chat before it, and {name} can"
                " read {context} at once.",
                tokens=number(counted.tokens),
                name=self._state.model_name(model) if model else self._state.model.name,
                context=number(asked.context),
            )
            remedy = tr("Edit it to choose pages or passages, a longer context or another model.")
            self._state.set_notice(NOTICE, Notice(sentence, remedy))
        return True

    async def _count_waiting(self, asked: _Asked, typed: str, again: Callable[[], object]) -> None:
        self._waiting = await self._counted_now(asked, typed)
        again()

    def cancel_edit(self, message: int) -> None:
        """An edited message is not to be sent."""
        if self._edited is not None and self._edited[0].message == message:
            self._edited = self._to_send = None
            self._later()

    def close(self) -> None:
        """Show the four ways no longer."""
        self._shown.set_fit(self._shown.fit)

    def use_longer_context(self) -> None:
        """Load the model again with a context in which the prompt fits."""
        loaded = self._state.model.loaded
        if (fit := self._shown.fit) and fit.longer_context and loaded is not None:
            self._set_context(loaded.path, fit.longer_context.tokens)
            self.close()
            self._model_use.reload()

    def use_model(self, model: ModelRef) -> None:
        """Answer in the shown chat by another model, with a context in which the prompt fits."""
        found = next((each for each in self._models if each.model == model), None)
        if found is not None and isinstance(model, Local):
            self._set_context(model.path, found.context)
        self.close()
        self._model_use.choose(model)

    # --- counting -------------------------------------------------------------------------------

    def _later(self) -> None:
        counted, here = self._counted, self._edited[0] if self._edited else self._state.current
        is_sent = counted is not None and counted.asked.files and not self._shown.of(here)
        if counted is None or counted.asked.place != here or is_sent:
            self._shown.set_fit(None)  # what is shown is of another message
        if not self._timer.isActive():
            self._timer.start()

    def _on_generations(self) -> None:
        was_answering, self._answering = self._answering, bool(self._state.generations)
        if was_answering and not self._answering:
            self._later()
            self._counted = None  # another part of the prompt is cached now
            self._speeds.clear()

    def _update(self) -> None:
        """Show what is known of the prompt, and count it again if it has changed."""
        self._count_files()
        asked, typed = self._asked()
        if asked is None:
            self._counted, self._wanted = None, False
            self._shown.set_fit(None)
            return
        if not asked.exact:
            self._counted = self._estimated(asked, typed)
        counted = self._counted
        if counted is not None and counted.asked == asked:
            self._show()
            near = self._most_tokens(asked, typed) + answer_room(asked.context)
            if counted.typed == typed or near <= asked.context:
                return
        if not self._counting and (self._wanted or not self._state.generations):
            self._counting, self._wanted = True, False
            start(self._count(asked, typed), self._on_fault)

    def _estimated(self, asked: _Asked, typed: str) -> _Counted:
        """The prompt as it is estimated for an engine elsewhere."""
        tokens = sum(self._about(turn.text) for turn in self._turns(asked, typed))
        return _Counted(asked, typed, tokens)

    async def _count(self, asked: _Asked, typed: str) -> None:
        """Count the prompt with this text, and show it."""
        counted = await self._counted_now(asked, typed)
        self._counting, self._counted = False, counted
        sent = self._to_send
        if sent is not None and (sent == (asked, typed) or sent != self._asked()):
            self._to_send = None
            self._state.set_notice(NOTICE, None)
        self._update()
        if sent == (asked, typed) == self._asked():
            self._shown.counted.emit()

    async def _counted_now(self, asked: _Asked, typed: str) -> _Counted:
        """The prompt as the engine counts it."""
        messages = self._messages(asked, typed)
        request = self._prompts.template(asked.chat, messages)
        counted = _Counted(asked, typed, failed=True)
        try:
            applied = await self._engine.submit(request).result(TemplateApplied)
        except RequestFailed as failed:
            fault = failed.event.fault
            if fault.kind is FaultKind.MESSAGE_TOO_LONG and fault.context:
                counted = _Counted(asked, typed, fault.context)
        else:
            first = memory_start(messages, applied.dropped_turns)
            counted = _Counted(
                asked,
                typed,
                applied.tokens,
                applied.cached_tokens,
                applied.prefill_seconds,
                _forgotten(messages, first),
            )
        return counted

    def _count_files(self) -> None:
        """Count the tokens of the next file that is not sent, by the tokenizer that reads it."""
        state = self._state
        exact, model, _ = self._reader(state.current)
        unsent = [each for place in self._shown.places() for each in self._shown.of(place)]
        if not unsent:
            self._file_tokens.clear()
        for each in unsent:
            if each.part is None:
                continue
            tokens = self._file_tokens.get(_key(model, each.part)) if exact else None
            if tokens is not None:
                self._set_tokens(each.part, tokens)
                continue
            about = each.tokens if each.tokens is not None and each.approximate else None
            if about is None and isinstance(each.part, FilePart):
                about = self._about(_read(each.part))
                self._set_tokens(each.part, about, approximate=True)
            if exact and not self._counting_files and not state.generations:
                self._counting_files = True
                start(self._count_file(model, each.part, about or 0), self._on_fault)

    async def _count_file(self, model: object, part: FileOrImage, about: int) -> None:
        """Count a file; `about` is taken where that fails, so that it is not tried again."""
        tokens = about
        with suppress(RequestFailed):
            if isinstance(part, ImagePart):
                given = self._prompts.given(part)
                request = CountTokens("", images=() if given is None else (given,))
            else:
                request = CountTokens(_read(part))
            tokens = (await self._engine.submit(request).result(TokensCounted)).tokens
        self._counting_files = False
        self._file_tokens[_key(model, part)] = tokens
        self._later()

    def _set_tokens(self, part: FileOrImage, tokens: int, *, approximate: bool = False) -> None:
        for place in self._shown.places():
            self._shown.set(
                place,
                [
                    replace(each, tokens=tokens, approximate=approximate)
                    if each.part is part
                    else each
                    for each in self._shown.of(place)
                ],
            )

    def _on_fault(self, error: Exception) -> None:
        self._counting = self._counting_files = False
        self._report(error)

    # --- what is asked --------------------------------------------------------------------------

    def _reader(self, chat: int | None) -> tuple[bool, object, int]:
        """Of the model of a chat: whether its tokenizer is here, its load, its context."""
        state = self._state
        model = state.settings(chat).model
        if isinstance(model, Remote):
            served = (each.context for each in state.served if each.model == model)
            return False, model, next(served, 0)
        loaded = state.model.loaded
        ready = state.model.phase is ModelPhase.READY
        if loaded is not None and ready and state.has_in_use(model):
            return True, (loaded.path, loaded.seconds), loaded.context
        return False, model, 0  # it is not loaded: its context is not known

    def _asked(self) -> tuple[_Asked | None, str]:
        """What the next prompt of the shown chat depends on, and the text that is typed.

        None: it need not be counted.
        """
        state, place, typed = self._state, self._state.current, self._typed
        before = state.messages
        if self._edited is not None:
            editor, parts = self._edited
            at = next((n for n, m in enumerate(before) if m.id == editor.message), None)
            if at is not None:
                own = tuple(each.part for each in self._shown.of(editor) if each.part)
                typed, before = prompt_text(without_files_and_images(parts)), before[:at]
                asked = self._asked_at(editor, place, before, own or files_and_images(parts), typed)
                return asked, typed
            self._edited = None  # it is not shown any more
        unsent = tuple(each.part for each in self._shown.of(place) if each.part)
        return self._asked_at(place, place, before, unsent, typed), typed

    def _asked_at(
        self,
        place: Place,
        chat: int | None,
        before: Sequence[Message],
        attached: tuple[FileOrImage, ...],
        typed: str,
    ) -> _Asked | None:
        """What the prompt of a message depends on that is written at a place."""
        exact, model, context = self._reader(chat)
        settings = self._state.settings(chat)
        is_long = 0 < context // 2 < _size(typed)
        may_forget = settings.policy is ContextPolicy.DROP_OLDEST and any(
            files_and_images(message.parts) for message in before
        )
        if not (attached or is_long or may_forget):
            return None
        branch = tuple(message.id for message in before)
        told = self._prompts.instructions(chat), self._prompts.tools(chat)
        key = settings.policy, settings.thinking, told
        return _Asked(place, chat, branch, attached, model, key, context, exact)

    def _messages(self, asked: _Asked, typed: str) -> list[Message]:
        """The branch before the message that is being written, and that message."""
        shown = () if asked.chat is None else self._state.branches.get(asked.chat, ())
        before = shown[: len(asked.branch)]
        parts = (*asked.files, *((TextPart(typed),) if typed else ()))
        own = Message(
            0, asked.chat or 0, None, Role.USER, parts, MessageState.COMPLETE, 0.0, "", "", 0, 0, 0.0, 1, 1,
        )  # fmt: skip
        return [*before, own] if parts else [*before]

    def _turns(self, asked: _Asked, typed: str) -> Sequence[Turn]:
        """The turns of the prompt, and one with what it has of tools beside results."""
        turns = self._prompts.turns(asked.chat, self._messages(asked, typed))
        tools = [f"{t.name} {t.description} {t.schema}" for t in self._prompts.tools(asked.chat)]
        calls = [f"{call.name} {call.arguments}" for turn in turns for call in turn.calls]
        return (*turns, *(Turn(Role.SYSTEM, text) for text in (*tools, *calls)))

    def _about(self, text: str) -> int:
        """About how many tokens a text has, by the answers of the shown chat."""
        messages = self._state.messages
        known = tuple((each.id, each.prompt_tokens) for each in messages)
        if known != self._measured[0]:
            self._measured = known, bytes_per_token(messages)
        return math.ceil(_size(text) / self._measured[1])

    def _most_tokens(self, asked: _Asked, typed: str) -> int:
        """The most tokens that the prompt can have with this text: none is less than a byte."""
        counted = self._counted
        if counted is None or counted.asked != asked or counted.failed:
            turns = self._turns(asked, typed)
            return sum(
                _size(turn.text) + _MARKUP + _MOST_OF_IMAGE * len(turn.images) for turn in turns
            )
        return counted.tokens + (0 if counted.typed == typed else _size(typed))

    # --- what is shown --------------------------------------------------------------------------

    def _show(self) -> None:
        """Show the prompt as it was counted, with what was typed since."""
        counted = self._counted
        if counted is None or counted.failed:
            self._shown.set_fit(None)
            return
        asked = counted.asked
        more = self._about(self._asked()[1]) - self._about(counted.typed)
        tokens = max(0, counted.tokens + more)
        free = max(0, asked.context - answer_room(asked.context) - tokens)
        if any(isinstance(p, FilePart) and p.reads is Reads.PASSAGES for p in asked.files):
            tokens += min(free // _PASSAGES_SHARE, _PASSAGES_TOKENS)  # about; they always fit
        unsent = self._shown.of(asked.place)
        estimate = FitEstimate(
            tokens,
            asked.context,
            answer_room(asked.context),
            sum(each.tokens or 0 for each in unsent if not _cut(each)),
            counted.cached,
            counted.seconds,
            not asked.exact or more != 0,
            counted.forgotten,
            editing=asked.place if isinstance(asked.place, Editing) else None,
        )
        if cut := [each for each in unsent if _cut(each)]:
            estimate = self._with_parts(estimate, asked, cut)
        if not estimate.fits:
            self._look_for_ways(asked, tokens + estimate.answer_tokens)
            less = _less_detail(estimate, unsent) if asked.exact else ()
            estimate = replace(
                estimate, longer_context=self._longer, models=self._models, less_detail=less
            )
        refused = self._shown.refused and not estimate.fits
        self._shown.set_fit(estimate, refused=refused)

    def _with_parts(
        self, estimate: FitEstimate, asked: _Asked, cut: Sequence[Attachment]
    ) -> FitEstimate:
        """The estimate with what the files cost that are read part by part."""
        tokens = sum(each.tokens or 0 for each in cut)
        estimate = replace(estimate, part_tokens=tokens)
        reads = next(each.file.reads for each in cut if each.file)
        fixed = self._about(self._prompts.instructions(asked.chat) + self._asked()[1]) + TASK
        sizes = part_sizes(asked.context or USUAL_CONTEXT, fixed, reads)
        if sizes is None:
            return estimate
        counts = [about_parts(e.file, e.tokens or 0, sizes.text) for e in cut if e.file]
        cost = long_cost(tokens, sum(counts), sizes, fixed, reads)
        seconds = self._speed().seconds(cost.read, cost.written)
        return replace(estimate, parts=cost.parts, part_seconds=seconds)

    def _speed(self) -> Speed:
        """That of the model of the shown chat in its last answers, once it was read."""
        model = self._state.settings(self._state.current).model
        name = self._state.model_name(model) if model else self._state.model.name
        if name not in self._speeds:
            self._speeds[name] = None

            def read(records: list[AnswerRecord]) -> None:
                self._speeds[name] = speed_of(name, records)
                self._later()

            self._store_queue.read(lambda store: store.last_answers(ANSWERS), read)
        return self._speeds[name] or Speed()

    # --- ways out -------------------------------------------------------------------------------

    def _look_for_ways(self, asked: _Asked, needed: int) -> None:
        """Look which context and which other models have room for so many tokens."""
        wanted = -(-needed // _STEP) * _STEP
        if self._ways == (asked.model, wanted):
            return
        self._ways, self._longer, self._models = (asked.model, wanted), None, ()
        state, defaults = self._state, self._library.defaults
        loaded = state.model.loaded if asked.exact else None
        reclaimable = self._library.model_index.reclaimable()
        own = None if loaded is None else loaded.path
        others = [each for each in state.installed if not each.bad and each.path != own]
        names = {each.path: each.name for each in others[:_MOST_MODELS]}
        asked_of = {path: defaults.whole(path) for path in (*names, *([own] if own else []))}
        served = tuple(
            OtherModel(each.model, each.name, each.context)
            for each in state.served
            if each.context >= needed and each.model != asked.model and not each.problem
        )

        def look() -> dict[Path, ModelFacts]:
            found: dict[Path, ModelFacts] = {}
            for path, values in asked_of.items():
                inspect = partial(_inspected, path, values, reclaimable)
                most = inspect(0).context_model
                if most >= needed:
                    found[path] = inspect(min(wanted, most))
            return found

        def looked(found: dict[Path, ModelFacts]) -> None:
            if self._ways != (asked.model, wanted):
                return
            if own is not None and (facts := found.get(own)) and not facts.problem:
                self._longer = LongerContext(facts.context, facts.cache_bytes, _fits(facts))
            local = tuple(
                OtherModel(Local(path), names[path], facts.context)
                for path, facts in found.items()
                if path in names and not facts.problem and _fits(facts)
            )
            self._models = (*local, *served)
            self._show()

        self._user_files.run(look, looked)

    def _set_context(self, path: Path, tokens: int) -> None:
        defaults = self._library.defaults
        defaults.change(path, replace(defaults.own(path), context=tokens))


def _cut(attached: Attachment) -> bool:
    """Whether it is read part by part."""
    return attached.file is not None and attached.file.reads.has_sections


def _less_detail(fit: FitEstimate, unsent: Sequence[Attachment]) -> tuple[tuple[int, int], ...]:
    """Ids of pictures, and the most tokens with which all of them fit beside the rest.

    A picture that has more tokens than it may have is seen with the fewest that there are.
    """
    costs = {
        each.id: each.tokens
        for each in unsent
        if isinstance(part := each.part, ImagePart)
        and each.tokens
        and (isinstance(part.detail, Detail) or each.tokens <= part.detail)
    }
    total = sum(costs.values())
    room = fit.context - fit.answer_tokens - (fit.tokens - total)
    if room <= 0:
        return ()
    return tuple((id, max(1, tokens * room // total)) for id, tokens in costs.items())


def _read(part: FilePart) -> str:
    """What the model reads of a file, at once or part by part."""
    return part.text if part.reads.has_sections else prompt_text((part,))


def _inspected(path: Path, values: ModelDefaults, reclaimable: int, context: int) -> ModelFacts:
    """Facts of a model with a context; 0: the usual one."""
    return inspect_model(
        path,
        context,
        values.cache or DEFAULT_CACHE,
        reclaimable=reclaimable,
        memory_bytes=values.memory_bytes,
        device=values.device,
    )


def _fits(facts: ModelFacts) -> bool:
    return facts.memory_bytes <= facts.available_bytes


def _key(model: object, part: FileOrImage) -> _FileKey:
    """What the tokens of a file depend on."""
    if isinstance(part, ImagePart):
        return model, part.sha256, part.name, part.detail, ()
    return model, part.sha256 or part.text, part.name, part.reads, part.chosen


def _size(text: str) -> int:
    """Bytes."""
    return len(text.encode("utf-8", "replace"))


def _forgotten(messages: Sequence[Message], first: int | None) -> tuple[str, ...]:
    """The names of the files in the messages before the first one that is read."""
    if first is None:
        return ()
    at = next(at for at, message in enumerate(messages) if message.id == first)
    read = {
        part.sha256 or part.name
        for message in messages[at:]
        for part in files_and_images(message.parts)
    }
    left_out = [part for message in messages[:at] for part in files_and_images(message.parts)]
    names = (
        part.name or tr("Pasted picture")
        for part in left_out
        if (part.sha256 or part.name) not in read
    )
    return tuple(dict.fromkeys(names))
