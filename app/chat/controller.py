"""The only caller of the engine and the store: intents in, commands out, events into state.

Every intent returns at once; what it changes is in the state when it returns, and on the disk soon
after. Engine events are taken apart in one `match`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, assert_never

from PySide6.QtCore import QObject, Signal

from app.chat.adapters import Adapters
from app.chat.answers import Answers
from app.chat.conversations import Conversations
from app.chat.drafts import Drafts
from app.chat.model_loader import Models, first_model
from app.chat.prompts import turns_of
from app.chat.quitting import LeftOutNotices, Quitting
from app.chat.runner import Runner
from app.chat.snapshots import Sessions
from app.engines.client import EngineMaker, EngineRequests
from app.library.service import Library
from app.settings.table import Settings, SettingsError, sampling, save, thinking
from app.state.chat import UNFINISHED, ModelPhase, Notice
from app.state.states import States
from app.store.store import DamagedStore, Message, MessageState, Salvaged, Store, StoreError
from app.store.writer import Archive
from app.system.worker import BackgroundWorker
from engine import (
    DEFAULT_CACHE,
    AdaptersSet,
    Engine,
    Event,
    Failed,
    Finished,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Role,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    delete_snapshots,
    snapshots_size,
)


class Controller(QObject):
    """Carries out what the window asks for."""

    settings_changed = Signal()
    may_quit = Signal()  # all is saved, or the user does not mind
    _faulted = Signal(object)  # an exception nobody caught, from any thread

    def __init__(
        self,
        states: States,
        archive: Archive,
        settings: Settings,
        settings_file: Path,
        engine: EngineMaker = Engine,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.state = state = states.chat
        self.settings = settings
        self._settings_file = settings_file
        self._archive = archive
        self._link = EngineRequests(engine, self.receive, self._on_unhandled, self)
        runner = Runner(state, archive, self._link, lambda: self.settings, self)
        # The user's files may lie on a drive that does not answer; settings must not wait for it.
        user_files = BackgroundWorker("user files", self)
        self._own_files = BackgroundWorker("own files", self)
        self.sessions = Sessions(
            state,
            states.sessions,
            archive,
            self._link,
            runner,
            self._own_files,
            lambda: self.settings,
            size=snapshots_size,
            delete=delete_snapshots,
        )
        self.adapters = Adapters(state, states.adapters, archive, self._link, runner, user_files)
        self._answers = Answers(state, archive, self._link, self.adapters, runner)
        states.adapters.settled.connect(self._answers.start_next)
        self.library = Library(state, states.library, settings, user_files, self)
        self.drafts = Drafts(state, archive)
        self.models = Models(state, self._link)
        self._number = count(-1, -1).__next__  # of conversations and messages made in this run
        self.conversations = Conversations(state, archive, self._number)
        self._opening: int | None = None
        self.quitting = Quitting(state, archive, self)
        self.quitting.may_quit.connect(self.may_quit)
        self._left_out = LeftOutNotices(state, archive)
        archive.fault_changed.connect(self._on_store_fault)
        self._faulted.connect(self.report)

    # --- life -----------------------------------------------------------------------------------

    def start(self, model: Path | None = None) -> None:
        """Start the engine, read the conversations and load a model; after the first paint."""
        self._link.start()
        self.conversations.read()
        self.drafts.read_first()
        self.adapters.read()
        self.library.start()
        chosen = model or first_model(self.settings.last_model)
        if chosen is not None:
            self.load_model(chosen)

    def drain(self) -> None:
        """Take what the engine has delivered, without waiting for the timer."""
        self._link.drain()

    def close(self) -> None:
        """End the engine, save all it wrote, then close the store; may block."""
        self.shut_down()
        self.stop_engine()
        self.save()
        self._archive.close()

    def ask_to_quit(self) -> None:
        """Say `may_quit` when all is saved, or ask the user when it is not, or takes too long."""
        self.save()
        self.quitting.ask()

    def shut_down(self) -> None:
        """Stop the answer being written and the downloads, and have what was read saved."""
        self._answers.stop_writing()
        self.sessions.shut_down()
        self.library.close()
        self._own_files.close()

    def stop_engine(self) -> None:
        """End the engine's thread; a step of `close` that another thread may take."""
        self._link.stop()

    def save(self) -> None:
        """Show what the engine wrote to its end, and hand it to the store."""
        self._link.drain()
        self.adapters.settle()
        self._answers.save()

    def report_soon(self, error: BaseException) -> None:
        """Have `report` called on the window's thread; may be called on any."""
        self._faulted.emit(error)

    def report(self, error: BaseException) -> None:
        """Show that something in the app itself failed; the app goes on."""
        self.state.set_notice(
            "fault",
            Notice(
                f"The app made a mistake of its own ({type(error).__name__}).",
                "Nothing is lost; the log says where it happened.",
            ),
        )

    def close_notice(self, kind: str) -> None:
        """The user has read a line of trouble; closing the question about quitting means no."""
        if kind == "quit":
            self.quitting.stay()
        self.state.set_notice(kind, None)

    def act_on_notice(self, kind: str) -> None:
        """The person pressed the button of a line of trouble."""
        if kind == "store":
            shown = self.state.branches.values()
            known = (
                max((c.id for c in self.state.conversations), default=0),
                max((m.id for branch in shown for m in branch), default=0),
            )
            self._archive.repair(known, self._on_repaired)
        elif kind == "quit":
            self.quitting.quit_anyway()

    def change_settings(self, **values: Any) -> None:
        """Change settings by name and save them."""
        self.settings = settings = replace(self.settings, **values)
        self.library.set_settings(settings)
        self.settings_changed.emit()

        def write() -> SettingsError | None:
            try:
                save(self._settings_file, settings)
            except SettingsError as error:
                return error
            return None

        self._own_files.run(write, self._on_settings_saved)

    # --- conversations --------------------------------------------------------------------------

    def new_conversation(self) -> None:
        """Show an empty conversation; it begins with its first message."""
        self._opening = None
        self.state.show(None)

    def open_conversation(self, conversation_id: int) -> None:
        """Show a conversation of the list."""
        self._opening = conversation_id
        if conversation_id in self.state.branches:
            if conversation_id != self.state.current:
                self.state.show(conversation_id)
            return
        number = self._archive.conversations.stored

        def read(store: Store) -> tuple[list[Message], str]:
            stored = number(conversation_id)
            return self._archive.here(store.branch(stored)), store.draft(stored)

        def shown(result: tuple[list[Message], str]) -> None:
            if self._opening != conversation_id:
                return
            if conversation_id in self.state.branches:  # asked for twice, and it goes on already
                self.open_conversation(conversation_id)
                return
            self.state.set_draft(conversation_id, result[1])
            self.state.show(conversation_id, result[0])

        self._archive.read(read, shown)

    def delete_conversations(self, conversation_ids: Sequence[int]) -> None:
        """Stop what is written in them and take them out of the list."""
        if not conversation_ids:
            return
        for conversation_id in conversation_ids:
            self._answers.stop(conversation_id)
        self.conversations.delete(conversation_ids)
        self.sessions.forget(conversation_ids)
        if self.state.current in conversation_ids:
            self.new_conversation()

    def undo_delete(self) -> None:
        """Bring back what was deleted last, and show it when it is one."""
        ids = self.conversations.undo()
        if len(ids) == 1:
            self.open_conversation(ids[0])

    # --- messages -------------------------------------------------------------------------------

    def send(self, text: str) -> bool:
        """Send a message in the shown conversation; False when it cannot be sent now."""
        text = text.strip()
        if not text or self.state.busy:
            return False
        shown = self.state.current
        parent = self.state.messages[-1].id if self.state.messages else None
        conversation_id = self._begin(text) if shown is None else shown
        self._ask(conversation_id, parent, text)
        self.drafts.keep(shown, "")  # behind the message, so that a crash between them loses none
        if shown is None:
            self.state.show(conversation_id)
        return True

    def stop(self) -> None:
        """Stop the answer of the shown conversation; what is there of it stays."""
        self._answers.stop(self.state.current)

    def regenerate(self, message_id: int, *, without_adapters: bool = False) -> None:
        """Answer again, as a sibling of this answer; a `without_adapters` one without adapters."""
        place, old = self._find(message_id)
        if old is None or old.role is not Role.ASSISTANT or self.state.busy:
            return
        self.state.cut(old.conversation, place)
        again = self._add(old.conversation, old.parent, Role.ASSISTANT, "", old.siblings + 1)
        self._answer(again, without_adapters=without_adapters)

    def edit(self, message_id: int, text: str) -> None:
        """Send another wording of an own message; the old one and its answers stay as a branch."""
        place, old = self._find(message_id)
        if old is None or old.role is not Role.USER or self.state.busy or not text.strip():
            return
        self.state.cut(old.conversation, place)
        self._ask(old.conversation, old.parent, text.strip(), old.siblings + 1)

    def continue_answer(self, message_id: int) -> None:
        """Go on with an answer that was cut off; its text grows."""
        place, old = self._find(message_id)
        last = place == len(self.state.messages) - 1
        if old is None or not last or old.state not in UNFINISHED or self.state.busy:
            return
        message = replace(old, state=MessageState.STREAMING, error="")
        self.state.change(message)
        number = self._archive.messages.stored
        self._archive.write(lambda store: store.append_text(number(message_id), ""))
        self._answer(message)

    def show_sibling(self, message_id: int, step: int) -> None:
        """Show the alternative before or after this message, with what followed it."""
        shown = self.state.current
        if shown is None:
            return
        self._answers.save()
        before = [message.id for message in self.state.messages]

        def select(store: Store) -> list[Message]:
            number = self._archive.messages.stored(message_id)
            return self._archive.here(store.select_sibling(number, step))

        def read(store: Store) -> list[Message]:
            number = self._archive.conversations.stored(shown)
            return self._archive.here(store.branch(number))

        def selected(branch: list[Message]) -> None:
            nonlocal before
            if self.state.current != shown:
                return
            now = [message.id for message in self.state.messages]
            if now != before or self._answers.ended_in(branch):
                before = now  # what happened since is in the store by now
                self._archive.read(read, selected, only_if_saved=True)
            else:
                self.state.show(shown, self._answers.with_newest_text(branch))

        self._archive.read(select, selected, only_if_saved=True)

    # --- the model ------------------------------------------------------------------------------

    def load_model(self, path: Path) -> None:
        """Load a model file in place of the one that is loaded; an answer being written stops."""
        self._answers.stop_writing()
        self.sessions.shut_down()
        self.state.set_notice("model", None)
        own = self.library.defaults.whole(path)
        cache = own.cache or DEFAULT_CACHE
        self.models.load(path, own.context or 0, self.settings.threads, cache)
        self._answers.start_next()

    def unload_model(self) -> None:
        """Drop the loaded model; an answer being written stops."""
        self._answers.stop_writing()
        self.sessions.shut_down()
        self.models.unload()

    # --- events ---------------------------------------------------------------------------------

    def receive(self, events: Sequence[Event]) -> None:
        """Take events of one kind and request; pieces of an answer that came together are one."""
        if isinstance(events[0], Text):
            self._answers.on_text([event for event in events if isinstance(event, Text)])
        else:
            for event in events:
                self._on_event(event)

    def _on_unhandled(self, request: int, error: Exception) -> None:
        """End a request whose event could not be handled; what came of an answer stays."""
        self.report(error)
        self._link.cancel(request)
        if self._answers.interrupt(request):
            return
        failed = Failed(request, f"The app made a mistake of its own ({type(error).__name__}).", "")
        if self.models.is_loading(request):
            self._on_load_failed(failed)
        elif not self.adapters.on_failed(failed):
            self.sessions.on_failed(failed)
        self._answers.start_next()

    def _on_event(self, event: Event) -> None:
        match event:
            case LoadProgress():
                self.models.on_progress(event)
            case ModelLoaded():
                self._on_loaded(event)
            case ModelUnloaded():
                self.models.on_unloaded(event)
                self._answers.start_next()
            case PromptProgress():
                self._answers.on_prompt(event)
            case Text():
                self._answers.on_text([event])
            case Finished():
                self._answers.on_finished(event)
                self.state.conversations_changed.emit()  # its dot in the list goes out
            case AdaptersSet():
                self.sessions.on_adapters_set(event)  # what is lost, before what is sent next
                self.adapters.on_adapters_set(event)
                self.models.on_adapters_set(event)
            case SnapshotLoaded():
                self.sessions.on_snapshot_loaded(event)
            case SnapshotSaved():
                self.sessions.on_snapshot_saved(event)
            case Failed():
                self._on_failed(event)
            case _:
                assert_never(event)

    def _on_loaded(self, event: ModelLoaded) -> None:
        self.models.on_loaded(event)
        path = self.state.model.path
        if self.state.model.phase is ModelPhase.READY and str(path) != self.settings.last_model:
            self.change_settings(last_model=str(path))
        self._answers.start_next()

    def _on_failed(self, event: Failed) -> None:
        parts = (self._answers, self.adapters, self.sessions)
        if not any(part.on_failed(event) for part in parts):
            self._on_load_failed(event)

    def _on_load_failed(self, event: Failed) -> None:
        self.models.on_failed(event)
        self.state.set_notice("model", Notice(event.message, event.remedy, "Choose a model"))
        if self.state.model.phase is ModelPhase.FAILED:
            self._answers.fail_waiting(f"{event.message} {event.remedy}".strip())
        self._answers.start_next()

    # --- steps ----------------------------------------------------------------------------------

    def _begin(self, text: str) -> int:
        """A new conversation; it takes along what was set up for it before its first message."""
        conversation_id = self.conversations.begin(text)
        self.adapters.begin(conversation_id)
        return conversation_id

    def _ask(self, conversation_id: int, parent: int | None, text: str, sibling: int = 1) -> None:
        own = self._add(conversation_id, parent, Role.USER, text, sibling)
        self._answer(self._add(conversation_id, own.id, Role.ASSISTANT, "", 1))
        self.conversations.change(conversation_id, updated=time.time())

    def _add(
        self, conversation_id: int, parent: int | None, role: Role, text: str, sibling: int
    ) -> Message:
        """Add a message at the end of the branch, the newest of `sibling` alternatives."""
        archive, number = self._archive, self._number()
        own = role is Role.USER
        state = MessageState.COMPLETE if own else MessageState.STREAMING
        model = "" if own else self.state.model.name
        message = Message(
            number, conversation_id, parent, role, text, state, time.time(), model,
            "", 0, 0, 0.0, sibling, sibling,
        )  # fmt: skip

        def add(store: Store) -> None:
            added = store.add_message(
                archive.conversations.stored(conversation_id),
                None if parent is None else archive.messages.stored(parent),
                role,
                text,
                state,
                model,
            )
            archive.messages.pair(number, added.id)

        archive.write(add, text)
        self.state.add(message)
        return message

    def _answer(self, message: Message, *, without_adapters: bool = False) -> None:
        settings = self.library.defaults.settings_for(self.state.model.path)
        turns = turns_of(self.state.branches[message.conversation], settings.system_prompt)
        self._answers.ask(
            message,
            turns,
            sampling(settings),
            settings.max_tokens,
            without_adapters=without_adapters,
            thinking=thinking(settings),
        )

    def _find(self, message_id: int) -> tuple[int, Message | None]:
        """A message of the shown branch and its place there."""
        for place, message in enumerate(self.state.messages):
            if message.id == message_id:
                return place, message
        return -1, None

    def _on_settings_saved(self, error: SettingsError | None) -> None:
        self.state.set_notice("settings", Notice(str(error), error.remedy) if error else None)

    def _on_repaired(self, aside: Path, found: Salvaged | None) -> None:
        if found is None:
            sentence = "Nothing could be read of the damaged file; a new one was begun."
        else:
            sentence = f"{found.conversations} conversations with {found.messages} messages were recovered."
        self._answers.save()
        for conversation in self.state.conversations:
            if branch := self.state.branches.get(conversation.id):
                self._archive.put_back(conversation, branch)
        self.adapters.put_back()
        self.state.set_notice("repair", Notice(sentence, f"The damaged file is kept as {aside}."))
        self.conversations.read()

    def _on_store_fault(self, error: StoreError | None) -> None:
        if error is None:
            self.state.set_notice("store", None)
            self.state.set_notice("quit", None)
            self.conversations.read()
            self.drafts.read_first()
            return
        action = "Move it aside" if isinstance(error, DamagedStore) else ""
        self.state.set_notice("store", Notice(str(error), error.remedy, action))
