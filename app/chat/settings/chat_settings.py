"""Settings of the chats: one record each, kept in the store; their format checked by the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.chat.requests.prompts import PromptBuilder
from app.chat.requests.token_count import TokenCount
from app.domain.chat_settings import ChatSettings, settings_of, settings_text
from app.domain.model_ref import ModelRef
from app.domain.variables import has_variables
from app.engines.client import EngineClient
from app.engines.run import RequestFailed, start
from app.state.chat import Notice, State
from app.state.chat_settings import ChatSettingsState, FormatFault, ShownSettings
from app.store.store import Store, StoreError
from app.store.writer import StoreQueue
from app.system.translation import tr
from engine import CheckConstraint, Constraint, ConstraintChecked

NOTICE = "format"  # kind of the notice that a format cannot be used


class ChatSettingsController:
    """Changes the settings of a chat at once in the state, and soon after in the store."""

    def __init__(
        self,
        state: State,
        shown: ChatSettingsState,
        store_queue: StoreQueue,
        engine: EngineClient,
        prompts: PromptBuilder,
        report: Callable[[Exception], None],
        usual_model: Callable[[], ModelRef | None] = lambda: None,
    ) -> None:
        """`report` is called with an unexpected exception; `usual_model` is the one that new chats
        begin with, None: the one in use.
        """
        self._state, self._shown, self._report = state, shown, report
        self._usual_model = usual_model
        self._store_queue, self._engine, self._prompts = store_queue, engine, prompts
        # Of the instructions.
        self.token_count = TokenCount(state, engine, self._on_tokens, report)
        self._has_read = False  # the stored record of the new chat
        self._touched = False  # the new chat's settings were changed before they were read
        self._unsaved: dict[int | None, ChatSettings] = {}
        self._checking = False  # a format is being checked, perhaps not the newest one
        self._faults: dict[Constraint, FormatFault | None] = {}  # by the loaded model's vocabulary
        self._model: object = None
        state.conversation_changed.connect(self._on_conversation)
        state.conversations_changed.connect(self._on_conversations)
        state.folders_changed.connect(self._on_conversations)
        state.new_folder_changed.connect(self._on_conversations)
        state.model_changed.connect(self._on_model)
        store_queue.fault_changed.connect(self._on_store_fault)

    def read(self) -> None:
        """Read the settings of the new chat; those of the others come with the list of chats."""

        def found(text: str) -> None:
            if self._has_read:
                return
            self._has_read = True
            if self._touched:
                self.save(None)
            else:
                self._state.set_settings(None, settings_of(text))
                self.refresh()

        self._store_queue.read(Store.new_chat_settings, found)

    def write_all(self) -> None:
        """Write the settings of the new chat again, after a damaged store was replaced."""
        self.save(None)

    def change(
        self, conversation: int | None, settings: ChatSettings, *, later: bool = False
    ) -> None:
        """Replace the settings of a chat, None: of the new one; `later`: `save` writes them.

        Those of a chat that is not listed (it was deleted, or is being restored) stay.
        """
        if settings == self._state.settings(conversation) or self._is_gone(conversation):
            return
        self._touched |= conversation is None
        self._state.set_settings(conversation, settings)
        self._unsaved[conversation] = settings
        if not later:
            self.save(conversation)
        self.refresh()

    def change_shown(self, settings: ChatSettings) -> None:
        """Replace the settings of the shown chat."""
        self._state.set_notice(NOTICE, None)
        self.change(self._state.current, settings)

    def use_collection(self, id: int, used: bool = True) -> None:
        """Let the shown chat be answered from a collection, or no longer."""
        settings = self._state.settings(self._state.current)
        kept = tuple(each for each in settings.collections if each != id)
        self.change_shown(replace(settings, collections=(*kept, id) if used else kept))

    def keep_variables(self, conversation: int) -> None:
        """Store the values of the variables in a chat's instructions, at its first question."""
        found = self._prompts.resolved(conversation)
        if has_variables(found.source):
            settings = self._state.settings(conversation)
            self.change(conversation, replace(settings, resolved=found))

    def save(self, conversation: int | None) -> None:
        """Write the settings of a chat, once the stored ones are known."""
        if conversation is None and not self._has_read:
            return
        settings = self._unsaved.pop(conversation, self._state.settings(conversation))
        text = settings_text(settings)
        self._store_queue.write(lambda store: store.set_settings(conversation, text), text)

    def save_all(self) -> None:
        """Write what was to be saved later."""
        for conversation in tuple(self._unsaved):
            self.save(conversation)

    def refuses(self, conversation: int | None) -> bool:
        """Whether the format of a conversation is known to be unusable; a notice says why then."""
        constraint = self._state.settings(conversation).constraint
        fault = None if constraint is None else self._faults.get(constraint)
        if fault is None:
            return False
        remedy = tr("Correct the answer format, or choose free text.")
        self._state.set_notice(NOTICE, Notice(fault.sentence, remedy, tr("Chat settings")))
        return True

    def refresh(self) -> None:
        """Show the settings of the shown conversation, and check their format."""
        settings = self._state.settings(self._state.current)
        constraint = settings.constraint
        unknown = constraint is not None and constraint not in self._faults
        if constraint is not None and unknown and not self._checking:
            self._checking = True
            start(self._check(constraint), self._on_fault)
        loaded = self._state.model.loaded
        instructions = self._prompts.instructions(self._state.current)
        shown = ShownSettings(
            settings,
            self._prompts.usual_sampling(settings.model),
            self._prompts.left_to_server(settings.model),
            self._prompts.usual_instructions(self._state.current),
            None if constraint is None else self._faults.get(constraint),
            checking=unknown,
            has_usual_model=self._state.has_in_use(settings.model)
            or settings.model == self._usual_model(),
            can_think=not self._state.has_in_use(settings.model)  # not known before it is loaded
            or (loaded is not None and (loaded.can_think or loaded.has_thinking_switch)),
            instructions=instructions,
            instruction_tokens=self.token_count.of(instructions) or 0,
        )
        self._shown.set(shown)
        self.token_count.count(instructions)

    def _on_store_fault(self, error: StoreError | None) -> None:
        if error is None and not self._has_read:
            self.read()

    def _on_tokens(self, tokens: int) -> None:
        self._shown.set(replace(self._shown.shown, instruction_tokens=tokens))

    # --- steps ----------------------------------------------------------------------------------

    def _is_gone(self, conversation: int | None) -> bool:
        return conversation is not None and self._state.conversation(conversation) is None

    async def _check(self, constraint: Constraint) -> None:
        model, fault = self._model, None
        try:
            found = await self._engine.submit(CheckConstraint(constraint)).result(ConstraintChecked)
            if found.message:
                fault = FormatFault(found.message, found.line, found.column)
        except RequestFailed:
            pass  # the engine refuses the answer if it is wrong
        self._checking = False
        if model is self._model:  # else it was checked for another vocabulary
            self._faults = {constraint: fault}  # of older texts none is needed again
        self.refresh()

    def _on_fault(self, error: Exception) -> None:
        self._checking = False
        self._report(error)

    def _on_conversations(self) -> None:
        """The list was read, or a row of it has changed, most often by its time only."""
        for conversation, settings in self._unsaved.items():
            if not self._is_gone(conversation):  # the stored ones are older
                self._state.set_settings(conversation, settings)
        shown = self._state.current
        usual = self._prompts.usual_instructions(shown)  # it may have moved to another folder
        if (
            self._state.settings(shown) is not self._shown.settings
            or usual != self._shown.shown.usual_instructions
        ):
            self.refresh()

    def _on_conversation(self) -> None:
        self._state.set_notice(NOTICE, None)
        self.refresh()

    def _on_model(self) -> None:
        if self._state.model.loaded is not self._model:  # another vocabulary
            self._model = self._state.model.loaded
            self._faults.clear()
        self.refresh()
