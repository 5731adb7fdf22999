"""Answer options of each conversation: kept in the store, and their format checked by the engine."""

from __future__ import annotations

from collections.abc import Callable

from app.engines.requests import RequestRouter
from app.settings.answer_options import AS_USUAL, AnswerOptions, options_of, options_text
from app.state.answer_options import FormatFault, OptionsState
from app.state.chat import Notice, State
from app.store.store import Store, StoreError
from app.store.writer import StoreQueue
from app.system.translation import tr
from engine import CheckConstraint, Constraint, ConstraintChecked, Failed, Sampling

NOTICE = "format"  # kind of the notice that a format cannot be used


class Options:
    """Changes the options at once in the state, and soon after in the store."""

    def __init__(
        self,
        state: State,
        shown: OptionsState,
        store_queue: StoreQueue,
        router: RequestRouter,
        usual: Callable[[], Sampling],
    ) -> None:
        """`usual` is the sampling by the settings and the model in use."""
        self._state, self._shown = state, shown
        self._store_queue, self._engine, self._usual = store_queue, router, usual
        self._options: dict[int | None, AnswerOptions] = {}  # None: the new chat
        self._changed: set[int | None] = set()  # before the stored ones were read
        self._has_read = False
        self._request, self._asked = 0, None  # the check in progress, and of what
        self._faults: dict[Constraint, FormatFault | None] = {}  # by the loaded model's vocabulary
        self._model: object = None
        state.conversation_changed.connect(self._on_conversation)
        state.model_changed.connect(self._on_model)
        store_queue.fault_changed.connect(self._on_store_fault)

    def read(self) -> None:
        """Read the stored options; call it before any conversation can be opened."""
        numbers = self._store_queue.conversations

        def load(store: Store) -> dict[int | None, str]:
            kept = store.answer_options()
            return {numbers.local(number) if number else None: kept[number] for number in kept}

        def found(kept: dict[int | None, str]) -> None:
            self._has_read = True
            stored = {number: options_of(text) for number, text in kept.items()}
            self._options = stored | {
                number: self._options.get(number, AS_USUAL) for number in self._changed
            }
            for number in self._changed:
                self._write(number)
            self._changed.clear()
            self.refresh()

        self._store_queue.read(load, found)

    def write_all(self) -> None:
        """Write all options again, after a damaged store was replaced."""
        for conversation in self._options:
            self._write(conversation)

    def of(self, conversation: int | None) -> AnswerOptions:
        """The options of a conversation; None: of the new chat."""
        return self._options.get(conversation, AS_USUAL)

    def change(self, options: AnswerOptions) -> None:
        """Replace the options of the shown conversation."""
        conversation = self._state.current
        if options == self.of(conversation):
            return
        self._options[conversation] = options
        self._save(conversation)
        self._state.set_notice(NOTICE, None)
        self.refresh()

    def begin(self, conversation_id: int) -> None:
        """The new chat became this conversation: its options move there."""
        options = self._options.pop(None, AS_USUAL)
        if options != AS_USUAL:
            self._options[conversation_id] = options
            self._save(conversation_id)
            self._save(None)

    def refuses(self, conversation: int | None) -> bool:
        """Whether the format of a conversation is known to be unusable; a notice says why then."""
        constraint = self.of(conversation).constraint
        fault = None if constraint is None else self._faults.get(constraint)
        if fault is None:
            return False
        remedy = tr("Correct the answer format, or choose free text.")
        self._state.set_notice(NOTICE, Notice(fault.sentence, remedy, tr("Answer options")))
        return True

    def refresh(self) -> None:
        """Show the options of the shown conversation, and check their format."""
        options = self.of(self._state.current)
        constraint = options.constraint
        unknown = constraint is not None and constraint not in self._faults
        if constraint is not None and unknown and not self._request:
            self._asked, asked = constraint, constraint
            self._request = self._engine.send(lambda number: CheckConstraint(number, asked))
        fault = None if constraint is None else self._faults.get(constraint)
        loaded = self._state.model.loaded
        can_think = loaded is not None and (loaded.can_think or loaded.has_thinking_switch)
        self._shown.set(options, self._usual(), fault, checking=unknown, can_think=can_think)

    # --- events ---------------------------------------------------------------------------------

    def on_checked(self, event: ConstraintChecked) -> None:
        """A format was checked, perhaps not the newest one."""
        if event.request != self._request:
            return
        fault = FormatFault(event.message, event.line, event.column) if event.message else None
        self._checked(fault)

    def on_failed(self, event: Failed) -> bool:
        """A format could not be checked: the engine refuses the answer if it is wrong."""
        if event.request != self._request:
            return False
        self._checked(None)
        return True

    def _on_store_fault(self, error: StoreError | None) -> None:
        if error is None and not self._has_read:
            self.read()

    # --- steps ----------------------------------------------------------------------------------

    def _checked(self, fault: FormatFault | None) -> None:
        asked, self._asked, self._request = self._asked, None, 0
        if asked is not None:
            self._faults = {asked: fault}  # of older texts none is needed again
        self.refresh()

    def _on_conversation(self) -> None:
        self._state.set_notice(NOTICE, None)
        self.refresh()

    def _on_model(self) -> None:
        if self._state.model.loaded is not self._model:  # another vocabulary
            self._model = self._state.model.loaded
            self._faults.clear()
            if self._request:  # for the vocabulary before
                self._asked = None
        self.refresh()

    def _save(self, conversation: int | None) -> None:
        """Write the options of a conversation, once the stored ones are known."""
        if self._has_read:
            self._write(conversation)
        else:
            self._changed.add(conversation)

    def _write(self, conversation: int | None) -> None:
        text = options_text(self.of(conversation))
        number = self._store_queue.conversations.stored
        self._store_queue.write(
            lambda store: store.set_answer_options(
                None if conversation is None else number(conversation), text
            ),
            text,
        )
