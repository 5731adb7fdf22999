"""LoRA adapters of the chats: a stack for every conversation, and applying it in the engine.

Each answer names its adapters. SetAdapters loads and checks the files of the shown conversation's
stack, and of any other that is to be used with files not checked yet: such an answer waits for
`AdapterState.request_finished`. An adapter that the engine refuses is switched off in its stack,
with the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QTimer

from app.chat.requests.planner import Uses
from app.chat.requests.runner import Runner
from app.chat.settings.chat_settings import ChatSettingsController
from app.domain.chat_settings import AdapterChoice
from app.domain.message import AdapterMark
from app.domain.model_ref import ModelRef
from app.engines.client import EngineClient
from app.engines.run import RequestFailed, Run, start
from app.state.adapters import (
    STRONGEST,
    AdapterEntry,
    AdapterState,
    KnownAdapter,
    adapter_name,
    adapter_path,
)
from app.state.chat import ModelPhase, State, is_same_load
from app.store.store import Store, StoredAdapters, StoreError
from app.store.writer import StoreQueue
from app.system.worker import BackgroundWorker
from engine import (
    AdapterInfo,
    AdaptersSet,
    AdapterUse,
    Chat,
    Failed,
    FaultKind,
    ModelLoaded,
    SetAdapters,
)

SEND_MILLISECONDS = 150  # update interval while a strength slider is dragged
OF_ADAPTERS = frozenset(
    (
        FaultKind.NO_FILE,
        FaultKind.NOT_A_FILE,
        FaultKind.UNREADABLE,
        FaultKind.NOT_A_MODEL,
        FaultKind.OTHER_TYPE,
        FaultKind.INCOMPLETE,
        FaultKind.DAMAGED,
        FaultKind.FORMAT,
        FaultKind.UNSUPPORTED,
        FaultKind.ADAPTER,
        FaultKind.NO_ADAPTER,
        FaultKind.OTHER_MODEL,
    )
)  # faults of files, of which an answer reads only those of its adapters
_DIGEST = 12  # characters of an adapter's hash that are stored with an answer


@dataclass(slots=True, eq=False)
class _Request:
    """A SetAdapters command that is outstanding."""

    conversation: int | None
    uses: Uses
    given: Uses | None = None  # adapters of one answer, instead of its conversation's


@dataclass(frozen=True, slots=True)
class _Check:
    """Adapters that an answer waits for."""

    conversation: int | None
    given: Uses | None  # None: those of the conversation


class Adapters:
    """Changes the stacks as the user asks, and applies them to engine and store."""

    def __init__(
        self,
        state: State,
        adapter_state: AdapterState,
        store_queue: StoreQueue,
        engine: EngineClient,
        runner: Runner,
        files: BackgroundWorker,
        settings: ChatSettingsController,
        report: Callable[[Exception], None],
    ) -> None:
        """`files` is the worker for the user's files, on any drive. `report` is called with an
        unexpected exception.
        """
        self._report = report
        self._settings = settings
        self._state = state
        self._shown = adapter_state
        self._store_queue = store_queue
        self._engine = engine
        self._runner = runner
        self._files = files
        self._errors: dict[int | None, dict[Path, AdapterEntry]] = {}  # refused, by conversation
        self._has_read = False
        self._model: ModelRef | None = None  # of the shown chat
        self._loaded: ModelLoaded | None = None  # the model that the fields below belong to
        self._check: _Check | None = None  # what is checked before the shown stack is set again
        self._refused_given: set[Uses] = set()  # their answer fails with the engine's error
        self._applied: Uses = ()
        self._requests: list[_Request] = []
        self._infos: dict[Path, AdapterInfo] = {}
        self._one_at_a_time = False  # send one new file per request, to find the refused one
        self._refused: Uses | None = None  # a stack of known files; not sent again
        self._generating: dict[int, tuple[Run, Uses]] = {}  # answers in progress, their stacks
        self._fault = ("", "")
        self._send_timer = QTimer(adapter_state, singleShot=True, interval=SEND_MILLISECONDS)
        self._send_timer.timeout.connect(self.flush)
        state.model_changed.connect(self._on_model)
        state.conversation_changed.connect(lambda: self.apply(state.current))
        state.generations_changed.connect(self._show_pending)
        store_queue.fault_changed.connect(self._on_store_fault)
        runner.sent.connect(self._on_sent)
        state.settings_changed.connect(self._on_settings)
        state.conversations_changed.connect(lambda: self._on_settings(state.current))

    # --- the store ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the known files and the mixes; the stacks are in the settings of the chats."""
        self._store_queue.read(Store.adapters, self._on_read)

    def find_missing(self) -> None:
        """Update which of the known adapter files are missing."""
        paths = [known.path for known in self._shown.known]

        def found(there: set[Path]) -> None:
            self._shown.set_known(
                [replace(known, missing=known.path not in there) for known in self._shown.known]
            )

        self._files.run(lambda: {path for path in paths if path.exists()}, found)

    def begin(self, conversation_id: int) -> None:
        """The new chat became this conversation: what was found of its adapters moves there."""
        if errors := self._errors.pop(None, None):
            self._errors[conversation_id] = errors
        for request in self._requests:
            if request.conversation is None:
                request.conversation = conversation_id

    def write_all(self) -> None:
        """Write everything again, after the store was replaced."""
        for name, mix in self._shown.mixes.items():
            self._save_mix(name, mix)
        for known in self._shown.known:
            self._save_known(known)

    # --- intents --------------------------------------------------------------------------------

    def add(self, path: Path) -> None:
        """Append an adapter to the stack, or switch it on if it is already there."""
        path, stack = adapter_path(path), self._shown.stack
        if path not in {known.path for known in self._shown.known}:
            known = KnownAdapter(path, adapter_name(path))
            self._shown.set_known([*self._shown.known, known])
            self._save_known(known)
        for index, entry in enumerate(stack):
            if entry.path == path:
                self.set_on(index, True)
                return
        self._change([*stack, AdapterEntry(path)])

    def remove(self, index: int) -> None:
        """Remove an adapter from the stack; its file is not touched."""
        stack = self._shown.stack
        if 0 <= index < len(stack):
            self._change([*stack[:index], *stack[index + 1 :]])

    def clear(self) -> None:
        """Remove all adapters from the stack."""
        self._change(())

    def set_on(self, index: int, on: bool) -> None:
        """Switch an adapter on or off; this clears its error, so a refused one is tried again."""
        self._replace(index, on=on, error="", remedy="", fault=None)

    def set_strength(self, index: int, strength: float) -> None:
        """Set the strength of an adapter; sent every `SEND_MILLISECONDS` until `flush`."""
        if not math.isfinite(strength):
            return
        strength = round(min(max(strength, -STRONGEST), STRONGEST), 2) + 0.0  # no -0.0
        if self._replace(index, later=True, strength=strength) and not self._send_timer.isActive():
            self._send_timer.start()

    def flush(self) -> None:
        """Send and save pending changes now, as when the slider is released."""
        self._send_timer.stop()
        self._settings.save_all()
        if not self._requests:  # else it is sent when the engine has answered them
            self._send()

    def move(self, index: int, place: int) -> None:
        """Move an adapter to another place in the order."""
        stack = list(self._shown.stack)
        if 0 <= index < len(stack) and 0 <= place < len(stack) and index != place:
            stack.insert(place, stack.pop(index))
            self._change(stack)

    def save_mix(self, name: str) -> None:
        """Save the stack as a mix, replacing one of the same name."""
        name, stack = " ".join(name.split()), self._shown.stack
        if name and stack:
            mix = tuple(_without_error(entry) for entry in stack)
            self._shown.set_mixes({**self._shown.mixes, name: mix})
            self._save_mix(name, mix)

    def apply_mix(self, name: str) -> None:
        """Replace the stack by a saved mix."""
        if name in self._shown.mixes:
            self._change(self._shown.mixes[name])

    def delete_mix(self, name: str) -> None:
        """Delete a saved mix; no stack changes."""
        if name in self._shown.mixes:
            self._shown.set_mixes({n: m for n, m in self._shown.mixes.items() if n != name})
            self._save_mix(name, ())

    # --- the engine -----------------------------------------------------------------------------

    def apply(self, conversation_id: int | None) -> None:
        """Show the stack of a conversation, and send it to the engine."""
        self._model = self._state.settings(conversation_id).model
        self._shown.set_stack(self._stack(conversation_id))
        self._send()
        self._show_pending()

    def uses_for(self, conversation_id: int | None, given: Uses | None = None) -> Uses | None:
        """The adapters of an answer; None: the engine checks them first.

        `given` replaces the conversation's. Call again when `request_finished` is emitted.
        """
        if not self._engine.capabilities.adapters:
            return ()
        uses = self._acting(conversation_id) if given is None else given
        if given in self._refused_given:
            self._refused_given.discard(given)
            return given
        if self._are_known(uses):
            return uses
        asked = (one for one in self._requests if one.given is None)
        if given is None and any(one.conversation == conversation_id for one in asked):
            return None
        if self._check is None:
            self._check = _Check(conversation_id, given)
            self._send()
        if not self._requests:  # the engine has them already
            self._check = None
            return uses
        return None

    def recheck(self, uses: Uses) -> None:
        """The engine has refused adapters of an answer: their files have changed since the check."""
        paths = {use.path for use in uses}
        self._infos = {path: info for path, info in self._infos.items() if path not in paths}
        self._applied = tuple(use for use in self._applied if use.path not in paths)
        if not self._requests:
            self._runner.set_adapters(self._applied, confirmed=True)

    def record_on(self, message_id: int, uses: Uses) -> None:
        """Store with a starting answer which adapters it is generated with."""
        message = self._state.message(message_id)  # None: another branch is shown by now
        before = () if message is None else message.adapters
        marks = [
            AdapterMark(adapter_name(use.path), use.strength, self._digest(use.path))
            for use in uses
        ]
        # A continued answer may have been started with other adapters.
        marks = [*before, *(mark for mark in marks if mark not in before)]
        if tuple(marks) == before:
            return
        if message is not None:
            self._state.change(replace(message, adapters=tuple(marks)))
        self._store_queue.write(lambda store: store.mark_message(message_id, marks))

    # --- steps: the engine ----------------------------------------------------------------------

    def _wanted(self) -> Uses:
        if self._check is None:
            return self._acting(self._state.current)
        given = self._check.given
        return self._acting(self._check.conversation) if given is None else given

    def _acting(self, conversation_id: int | None) -> Uses:
        """The adapters of a conversation that are switched on."""
        stack = self._stack(conversation_id) if self._engine.capabilities.adapters else ()
        return tuple(AdapterUse(entry.path, entry.strength) for entry in stack if entry.acts)

    def _are_known(self, uses: Uses) -> bool:
        """Whether the engine has accepted the files of these adapters."""
        return all(use.path in self._infos for use in uses)

    def _target(self) -> Uses:
        """The stack to request next: the wanted one, unless the engine has refused it."""
        uses = self._wanted()
        if self._one_at_a_time:
            new = [use.path for use in uses if use.path not in self._infos]
            uses = tuple(use for use in uses if use.path not in new[1:])
        return self._runner.engine_state.adapters if uses == self._refused else uses

    def _send(self) -> None:
        """Request the target stack, unless the engine has or gets it already.

        Those of a chat are for its model: another one would refuse them.
        """
        chat = self._state.settings(self._state.current).model
        fits = self._check is not None or self._state.has_in_use(chat)
        if self._state.model.phase is ModelPhase.READY and fits:
            check = self._check or _Check(self._state.current, None)
            self._runner.apply_adapters(check.conversation, self._target())
            self._publish()

    def _on_sent(self, run: Run, _: object) -> None:
        """Follow a command that the runner has sent."""
        match run.request:
            case SetAdapters(adapters=uses):
                check = self._check or _Check(self._state.current, None)
                request = _Request(check.conversation, uses, check.given)
                self._requests.append(request)
                self._publish()
                start(self._set(run, request), self._on_fault)
            case Chat(adapters=uses):
                self._generating[run.id] = run, uses or ()
            case _:
                pass

    async def _set(self, run: Run, request: _Request) -> None:
        """Wait until the engine has applied a stack, or refused it and kept the old one."""
        try:
            done = await run.result(AdaptersSet)
        except RequestFailed as failed:
            self._requests.remove(request)
            if self._state.model.phase is ModelPhase.READY:
                if request.given is None:
                    self._switch_off_refused(request, failed.event)
                else:
                    self._refused_given.add(request.given)
                    self._check = None
        else:
            self._runner.on_adapters_set(done)  # first: the cached context may be lost
            self._requests.remove(request)
            self._applied, self._refused, self._fault = request.uses, None, ("", "")
            for use, info in zip(request.uses, done.adapters, strict=False):
                self._infos[use.path] = info
        self._start_next()

    def _on_fault(self, error: Exception) -> None:
        self._report(error)
        self._shown.request_finished.emit()

    def _start_next(self) -> None:
        """A request has ended: send the next stack, and emit `request_finished`."""
        if self._check is not None and self._are_known(self._wanted()):
            self._check = None
        if not self._requests:
            self._runner.set_adapters(self._applied, confirmed=True)
            self._send()
        self._publish()
        if not self._requests:
            self._one_at_a_time = False
        self._shown.request_finished.emit()

    def _switch_off_refused(self, request: _Request, event: Failed) -> None:
        """Switch off the refused adapter; several new files are first tried one at a time."""
        has = {use.path for use in self._applied}
        new = [use.path for use in request.uses if use.path not in has]
        if len(new) > 1:
            self._one_at_a_time = True
            self._infos = {path: info for path, info in self._infos.items() if path not in new}
        elif new:
            self._switch_off(request.conversation, new[0], event)
        else:  # no single file is the cause: switch all off rather than show a stack not in use
            self._fault = (event.message, event.remedy)
            self._refused = request.uses
            stack = [replace(entry, on=False) for entry in self._stack(request.conversation)]
            self._set_stack(request.conversation, stack)
            self._settings.save(request.conversation)
        if request.conversation == self._state.current:
            self._shown.set_stack(self._stack(request.conversation))

    def _switch_off(self, conversation_id: int | None, path: Path, event: Failed) -> None:
        self._infos.pop(path, None)
        refused = AdapterEntry(path, False, 1.0, event.message, event.remedy, event.fault)
        self._errors.setdefault(conversation_id, {})[path] = refused

    def _on_model(self) -> None:
        """Reset for another model: it has no adapters yet, and may accept those refused before."""
        loaded, before = self._state.model.loaded, self._loaded
        self._loaded = loaded
        if loaded is before or self._is_same_after_cancel(before, loaded):
            self._send()  # changes made during the load
            return
        self._applied = ()
        self._runner.set_adapters((), confirmed=not self._requests)
        self._infos, self._fault = {}, ("", "")
        self._check, self._refused_given = None, set()
        self._one_at_a_time, self._refused = False, None
        self._errors.clear()
        self.apply(self._state.current)
        self._publish()

    def _is_same_after_cancel(self, before: ModelLoaded | None, loaded: ModelLoaded | None) -> bool:
        """Whether a load was cancelled, and the event repeats the model that stayed."""
        return before is not None and self._state.model.kept and is_same_load(before, loaded)

    def _digest(self, path: Path) -> str:
        info = self._infos.get(path)
        return info.sha256[:_DIGEST] if info else ""

    def _publish(self) -> None:
        reading = {use.path for request in self._requests for use in request.uses}
        self._shown.set_applied(
            self._applied, self._infos, frozenset(reading - set(self._infos)), self._fault
        )
        self._show_pending()

    def _show_pending(self) -> None:
        shown = self._state.shown_generation
        for request in self._generating.keys() - self._state.generations.keys():
            if self._generating[request][0].is_over:
                del self._generating[request]
        acting = self._acting(self._state.current)
        last = self._state.messages[-1:]
        # Compared answers may be written with other adapters than those of the conversation.
        compared = bool(last) and last[0].undecided
        written = shown is not None and not shown.stopping and not compared
        uses = acting
        if shown and written:
            uses = self._generating[shown.request][1] if shown.request in self._generating else ()
        self._shown.set_pending(uses != acting)

    # --- steps: the stack and the store ---------------------------------------------------------

    def _replace(self, index: int, *, later: bool = False, **values: object) -> bool:
        """Change one entry of the shown stack; returns whether anything changed."""
        stack = list(self._shown.stack)
        if not 0 <= index < len(stack):
            return False
        stack[index] = replace(stack[index], **values)  # type: ignore[arg-type]
        return self._change(stack, later=later)

    def _change(self, stack: Sequence[AdapterEntry], *, later: bool = False) -> bool:
        """Make this the stack of the shown conversation."""
        shown = self._state.current
        if tuple(stack) == self._stack(shown):
            return False
        self._refused, self._fault = None, ("", "")
        self._set_stack(shown, stack)
        if not later:
            self.flush()
        self._publish()
        return True

    def _stack(self, conversation_id: int | None) -> tuple[AdapterEntry, ...]:
        """The stack of a conversation; an adapter that the engine refused is off, with the error."""
        errors = self._errors.get(conversation_id, {})
        return tuple(
            replace(errors[use.path], strength=use.strength)
            if use.on and use.path in errors
            else AdapterEntry(use.path, use.on, use.strength)
            for use in self._state.settings(conversation_id).adapters
        )

    def _set_stack(self, conversation_id: int | None, stack: Sequence[AdapterEntry]) -> None:
        """Change the stack in the settings of a conversation; `flush` writes it."""
        self._errors[conversation_id] = {entry.path: entry for entry in stack if entry.error}
        if conversation_id == self._state.current:
            self._shown.set_stack(stack)
        uses = tuple(_stored(entry) for entry in stack)
        settings = replace(self._state.settings(conversation_id), adapters=uses)
        self._settings.change(conversation_id, settings, later=True)
        self._on_settings(conversation_id)  # a chat that is being restored keeps its adapters

    def _on_settings(self, conversation_id: int | None) -> None:
        """The settings of a conversation were changed, perhaps its adapters."""
        if conversation_id != self._state.current:
            return
        stack, model = self._stack(conversation_id), self._state.settings(conversation_id).model
        if model != self._model:
            self._model = model
            self._send()
        if self._shown.stack != stack:
            self._refused, self._fault = None, ("", "")
            self._shown.set_stack(stack)
            self._send_timer.start()

    def _save_mix(self, name: str, mix: Sequence[AdapterEntry]) -> None:
        uses = [_stored(entry) for entry in mix]
        self._store_queue.write(lambda store: store.set_adapter_mix(name, uses))

    def _save_known(self, known: KnownAdapter) -> None:
        self._store_queue.write(lambda store: store.set_known_adapter(known.path, known.name))

    def _on_read(self, kept: StoredAdapters) -> None:
        self._has_read = True
        mixes = {name: tuple(_entry(use) for use in uses) for name, uses in kept.mixes.items()}
        self._shown.set_mixes({**mixes, **self._shown.mixes})
        known = {path: KnownAdapter(path, name) for path, name in kept.known}
        self._shown.set_known(list({**known, **{k.path: k for k in self._shown.known}}.values()))

    def _on_store_fault(self, error: StoreError | None) -> None:
        if error is None and not self._has_read:
            self.read()


def _without_error(entry: AdapterEntry) -> AdapterEntry:
    """The entry as the user set it: on again, if an error switched it off."""
    return replace(entry, on=True, error="", remedy="", fault=None) if entry.error else entry


def _stored(entry: AdapterEntry) -> AdapterChoice:
    return AdapterChoice(entry.path, _without_error(entry).on, entry.strength)


def _entry(use: AdapterChoice) -> AdapterEntry:
    strength = min(max(use.strength, -STRONGEST), STRONGEST)
    return AdapterEntry(use.path, use.on, strength)
