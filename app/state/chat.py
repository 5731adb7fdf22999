"""Observable state of the chat: conversations, the model, the answers in progress, and notices.

Only the controller changes it; widgets read it and connect to its signals. Values are immutable,
so a widget can keep a reference to one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import Signal

from app.domain.chat import Conversation, Folder, Hit, TrashedConversation
from app.domain.chat_settings import NO_SETTINGS, ChatSettings
from app.domain.folders import chain
from app.domain.message import Message
from app.domain.model_ref import ModelRef, Remote, local_path
from app.domain.parts import Parts
from app.engines.client import Capabilities
from app.state.connections import EngineRow
from app.state.observable import EMPTY, Observable, ReadOnly, changed
from engine import DeviceInfo, Fault, ModelLoaded, model_label, model_name


class ModelPhase(Enum):
    """Phase of the model in use."""

    NONE = "none"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"  # and no other model is loaded


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The model in use or being loaded: progress, and the last error."""

    phase: ModelPhase = ModelPhase.NONE
    model: ModelRef | None = None
    name: str = ""  # displayed
    done_bytes: int = 0  # of a load
    total_bytes: int = 0
    loaded: ModelLoaded | None = None  # set while READY
    kept: bool = False  # a load was cancelled, and `loaded` is the model before it
    freed_bytes: int = 0  # by the last unload; 0 once another model is chosen
    error: str = ""  # of the last load, even when the model before it is still loaded
    remedy: str = ""
    fault: Fault | None = None  # `error` as a code
    failed: ModelRef | None = None  # the model of `error`

    @property
    def path(self) -> Path | None:
        """The file of a local model."""
        return local_path(self.model)

    @property
    def full_name(self) -> str:
        """The name and, once it is loaded, the quantization: there may be several of one name."""
        format = self.loaded.format if self.phase is ModelPhase.READY and self.loaded else ""
        return f"{self.name} · {format}" if format else self.name


@dataclass(frozen=True, slots=True)
class ChatModel:
    """The model of the shown chat while another one is in use, or none."""

    model: ModelRef
    name: str  # displayed
    loaded: str = ""  # displayed name of the model that is loaded instead; "": none
    missing: str = ""  # why it cannot answer: it is gone, or its server does not answer
    load_seconds: float = 0.0  # about, until it can answer; 0: not known
    server: str = ""  # host and port that it runs on, so that nothing has to be loaded; "": here
    context: int = 0  # tokens of a model of a server; 0: not known


@dataclass(frozen=True, slots=True)
class ModelFile:
    """An installed model that can be chosen."""

    path: Path
    name: str  # displayed
    size_bytes: int
    format: str = ""  # as users know it: "Q4_K_M"
    bad: bool = False  # cannot be used
    from_disk: bool = False  # does not fit in memory, and runs slowly
    sees: bool = False  # takes pictures: a picture encoder beside it fits


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of a server that can be chosen."""

    model: Remote
    name: str  # displayed
    server: str  # name of its connection
    host: str  # host and port
    context: int = 0  # tokens; 0: not known
    problem: str = ""  # why its server does not answer


@dataclass(frozen=True, slots=True)
class Generation:
    """Progress of one answer, from its request to its end; several may be in progress."""

    request: int
    conversation: int
    message: int  # the last one of the branch that is answered
    model: ModelRef | None = None  # that writes it
    started: bool = False  # the engine works on it; until then it waits for its turn
    prompt_done: int = 0  # tokens
    prompt_total: int = 0
    generated: int = 0  # tokens of this request
    tokens_per_second: float = 0.0
    context_used: int = 0  # tokens
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """One line about a problem; shown until the problem is solved or the line is closed."""

    sentence: str
    remedy: str = ""
    action: str = ""  # text of the button; empty: none
    detail: str = ""  # the exact technical text, shown on request


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that was entered during an answer, and is sent when that answer is complete."""

    number: int  # identifies it in this run
    parts: Parts
    held: bool = (
        False  # it waits for the user: the answer was stopped, failed, or is of another run
    )


@dataclass(frozen=True, slots=True)
class Deletion:
    """What one Undo takes back: a deletion, a move in the list, or an import."""

    conversations: tuple[int, ...] = ()
    message: int | None = None
    conversation: int | None = None  # of the message
    folders: tuple[Folder, ...] = ()  # deleted, with the conversations in them
    moved: tuple[Conversation, ...] = ()  # as they were before they were moved or archived
    moved_folders: tuple[Folder, ...] = ()  # as they were before one was moved
    archived: bool = False  # `moved` were archived
    imported: tuple[int, ...] = ()  # conversations that an import made
    imported_folders: tuple[int, ...] = ()
    connection: EngineRow | None = None  # deleted, to an engine elsewhere


def is_same_load(one: ModelLoaded | None, other: ModelLoaded | None) -> bool:
    """Whether both report one load; the engine repeats it when a newer load is cancelled."""
    if one is None or other is None:
        return one is other
    return (one.path, one.seconds) == (other.path, other.seconds)


class State(Observable):
    """Observable; every signal is sent after the values have changed."""

    conversations_changed = Signal()
    conversation_changed = Signal()  # another one is shown, or another branch of it
    message_added = Signal(object)  # Message, at the end of the shown branch
    message_changed = Signal(object)  # Message of the shown branch
    message_removed = Signal(object)  # id, from the end of the shown branch
    compared_changed = Signal()  # a comparison of the shown branch was opened or closed
    devices_changed = Signal()
    text_added = Signal(object, str)  # Message of the shown branch as it is now, and the piece
    waiting_changed = Signal(object, str)  # id and the note on what it waits for; empty: started
    model_changed = Signal()
    chat_model_changed = Signal()
    generations_changed = Signal()  # any of `generations`, `queued`, `waiting`, `last_speed`
    notices_changed = Signal()
    draft_changed = Signal(object)  # conversation or None
    draft_found = Signal(object)  # the stored draft of the new chat: parts
    outbox_changed = Signal(object)  # conversation
    found_opened = Signal(str, object)  # a search result was opened: the query and its message
    memory_changed = Signal()  # of the shown conversation
    deletions_changed = Signal()
    trash_changed = Signal()
    reading_changed = Signal()
    typed_changed = Signal()
    titled_changed = Signal()
    capabilities_changed = Signal()
    settings_changed = Signal(object)  # conversation, or None: the new chat
    folders_changed = Signal()
    new_folder_changed = Signal()

    conversations = ReadOnly[tuple[Conversation, ...]](())  # the last active first
    query = ReadOnly("")
    found = ReadOnly[tuple[Conversation, ...]](())  # results of `query`
    # The best message of the first results, unless only the title fits.
    hits = ReadOnly[Mapping[int, Hit]](EMPTY)
    new_chat = ReadOnly(NO_SETTINGS)  # settings of the chat that is not begun yet
    folders = ReadOnly[tuple[Folder, ...]](())  # by position
    new_folder = ReadOnly[int | None](None)  # in which the new chat begins
    current = ReadOnly[int | None](None)  # shown conversation; None: the new chat
    # Of every conversation opened so far.
    branches = ReadOnly[Mapping[int, tuple[Message, ...]]](EMPTY)
    # The other answer of an open comparison, by the id of the one in the branch.
    compared = ReadOnly[Mapping[int, Message]](EMPTY)
    # Conversation longer than the context: the first message that the model reads.
    memory_starts = ReadOnly[Mapping[int, int]](EMPTY)
    # By conversation: the questions whose passages the model no longer reads, for want of room.
    left_out = ReadOnly[Mapping[int, frozenset[int]]](EMPTY)
    model = ReadOnly(ModelStatus())
    chat_model = ReadOnly[ChatModel | None](None)  # of the shown chat; None: it is the one in use
    generations = ReadOnly[Mapping[int, Generation]](EMPTY)  # by request, the oldest first
    queued = ReadOnly[Mapping[int, int]](EMPTY)  # answer not requested yet: its conversation
    # Answer not started yet: note on what it waits for.
    waiting = ReadOnly[Mapping[int, str]](EMPTY)
    drafts = ReadOnly[Mapping[int | None, Parts]](EMPTY)  # unsent, by conversation; None: new chat
    outbox = ReadOnly[Mapping[int, tuple[WaitingMessage, ...]]](EMPTY)  # by conversation
    installed = ReadOnly[tuple[ModelFile, ...]](())
    served = ReadOnly[tuple[ServedModel, ...]](())  # by engines elsewhere
    last_speed = ReadOnly(0.0)  # tokens/s of the last answer that has ended
    notices = ReadOnly[Mapping[str, Notice]](EMPTY)
    deletions = ReadOnly[tuple[Deletion, ...]](())  # that Undo restores in turn, the last one first
    trash = ReadOnly[tuple[TrashedConversation, ...]](())  # the last deleted first
    devices = ReadOnly[tuple[DeviceInfo, ...]](())  # beside the processor
    typed_tokens = ReadOnly(0)  # of the text in the composer; 0: none, or not counted yet
    titled = ReadOnly[int | None](None)  # conversation for which the model writes a title
    reading = ReadOnly[int | None](None)  # message that is read aloud
    can_read = ReadOnly(False)  # the system can read aloud
    capabilities = ReadOnly(Capabilities())  # of the engine; decide what the window offers
    offered = ReadOnly(0)  # how many of the newest deletions the sidebar offers to undo

    # --- reading --------------------------------------------------------------------------------

    @property
    def messages(self) -> Sequence[Message]:
        """The shown branch."""
        return self.branches.get(self.current, ()) if self.current is not None else ()

    @property
    def busy(self) -> bool:
        """Whether the shown conversation has an answer in progress or queued."""
        return self.current is not None and self.current in self.busy_conversations

    @property
    def busy_conversations(self) -> frozenset[int]:
        """Conversations with an answer in progress or queued."""
        requested = {generation.conversation for generation in self.generations.values()}
        return frozenset(requested | set(self.queued.values()))

    @property
    def writing_conversations(self) -> frozenset[int]:
        """Conversations with an answer that the engine works on."""
        started = (each for each in self.generations.values() if each.started)
        return frozenset(each.conversation for each in started)

    @property
    def shown_generation(self) -> Generation | None:
        """The answer in progress of the shown conversation."""
        shown = (g for g in self.generations.values() if g.conversation == self.current)
        return next(shown, None)

    @property
    def speed(self) -> float:
        """Tokens/s of the shown answer in progress or, before it is known, of the last answer."""
        shown = self.shown_generation
        return (shown.tokens_per_second if shown else 0.0) or self.last_speed

    @property
    def shown_conversations(self) -> tuple[Conversation, ...]:
        """The list of conversations, or the results of the query."""
        return self.found if self.query else self.conversations

    @property
    def context_used(self) -> int:
        """Tokens of the context window the shown conversation fills; 0: not known."""
        if self.shown_generation and self.shown_generation.context_used:
            return self.shown_generation.context_used
        for message in reversed(self.messages):
            if message.prompt_tokens:
                return message.chat_tokens
        return 0

    @property
    def memory_start(self) -> int | None:
        """First message of the shown conversation that the model reads; None: it reads all."""
        return None if self.current is None else self.memory_starts.get(self.current)

    @property
    def deleted(self) -> frozenset[int]:
        """The conversations that Undo would restore."""
        return frozenset(each for one in self.deletions for each in one.conversations)

    def title(self, conversation_id: int | None) -> str:
        """A conversation's title, or nothing."""
        return next((c.title for c in self.conversations if c.id == conversation_id), "")

    def conversation(self, conversation_id: int | None) -> Conversation | None:
        """A conversation of the list."""
        return next((c for c in self.conversations if c.id == conversation_id), None)

    def settings(self, conversation_id: int | None) -> ChatSettings:
        """The settings of a conversation; None: of the new chat."""
        if conversation_id is None:
            return self.new_chat
        found = self.conversation(conversation_id)
        return NO_SETTINGS if found is None else found.settings

    def has_in_use(self, model: ModelRef | None) -> bool:
        """Whether a model is loaded or being loaded; None: whichever is."""
        phases = (ModelPhase.LOADING, ModelPhase.READY)
        return model is None or (self.model.phase in phases and self.model.model == model)

    def model_name(self, model: ModelRef, *, whole: bool = False) -> str:
        """The displayed name of a model, `whole`: with its quantization."""
        if model == self.model.model:
            return self.model.full_name if whole else self.model.name
        path = local_path(model)
        if path is None:
            named = (each.name for each in self.served if each.model == model)
            return next(named, model.file_name)
        for file in self.installed:
            if file.path == path:
                return f"{file.name} · {file.format}" if whole and file.format else file.name
        return model_label(path) if whole else model_name(path)

    def folder(self, folder_id: int | None) -> Folder | None:
        """A folder by its id."""
        return next((each for each in self.folders if each.id == folder_id), None)

    def folder_of(self, conversation_id: int | None) -> int | None:
        """The folder of a conversation; None as the conversation: of the new chat."""
        if conversation_id is None:
            return self.new_folder
        found = self.conversation(conversation_id)
        return None if found is None else found.folder

    def folder_instructions(self, conversation_id: int | None) -> str | None:
        """The instructions of the nearest folder around a conversation that has some."""
        around = chain(self.folders, self.folder_of(conversation_id))
        return next((f.instructions for f in around if f.instructions is not None), None)

    def message(self, message_id: int) -> Message | None:
        """A message of any branch opened so far, or the other one of an open comparison."""
        for message in self.compared.values():
            if message.id == message_id:
                return message
        for branch in self.branches.values():
            for message in reversed(branch):
                if message.id == message_id:
                    return message
        return None

    # --- changing: the controller only ----------------------------------------------------------

    def show(
        self,
        conversation_id: int | None,
        messages: Sequence[Message] | None = None,
        others: Sequence[Message] = (),
    ) -> None:
        """Show a conversation; `messages`, if given, replace its branch.

        `others` are the other answers of the open comparisons among `messages`.
        """
        if messages is not None and conversation_id is not None:
            self._set_branch(conversation_id, messages, others)
        self._current = conversation_id
        self.conversation_changed.emit()
        self.generations_changed.emit()

    def set_branch(
        self, conversation_id: int, messages: Sequence[Message], others: Sequence[Message] = ()
    ) -> None:
        """Replace the branch of a conversation, which may be the shown one; `others` as in `show`."""
        self._set_branch(conversation_id, messages, others)
        if conversation_id == self.current:
            self.conversation_changed.emit()
            self.generations_changed.emit()

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        """Replace the list of conversations."""
        self._conversations = tuple(conversations)
        self.conversations_changed.emit()

    def set_settings(self, conversation_id: int | None, settings: ChatSettings) -> None:
        """Replace the settings of a conversation; None: of the new chat."""
        if settings == self.settings(conversation_id):
            return
        if conversation_id is None:
            self._new_chat = settings
        else:

            def changed(rows: Sequence[Conversation]) -> tuple[Conversation, ...]:
                return tuple(
                    replace(c, settings=settings) if c.id == conversation_id else c for c in rows
                )

            self._conversations, self._found = changed(self.conversations), changed(self.found)
        self.settings_changed.emit(conversation_id)

    def set_folders(self, folders: Sequence[Folder]) -> None:
        """Replace the folders."""
        self._folders = tuple(sorted(folders, key=lambda folder: (folder.position, folder.id)))
        self.folders_changed.emit()
        if self.folder(self.new_folder) is None:
            self.set_new_folder(None)

    def set_new_folder(self, folder_id: int | None) -> None:
        """Set the folder in which the new chat begins."""
        self._set(self.new_folder_changed, new_folder=folder_id)

    def set_found(
        self, query: str, found: Sequence[Conversation], hits: Mapping[int, Hit] | None = None
    ) -> None:
        """Show the results of a query; an empty query shows the whole list.

        Without `hits`, those of the query shown already stay.
        """
        if hits is not None or not query:
            self._hits = MappingProxyType(dict(hits or {}))
        self._query, self._found = query, tuple(found)
        self.conversations_changed.emit()

    def touch(self, conversation_id: int) -> None:
        """Move a conversation to the top of the list: an answer was started, or has ended."""
        self.change_conversation(conversation_id, updated=time.time())

    def change_conversation(self, conversation_id: int, **values: Any) -> None:
        """Change fields of a row of the list, and sort it by last activity."""
        self.change_conversations({conversation_id: values})

    def change_conversations(self, values: Mapping[int, Mapping[str, Any]]) -> None:
        """Change fields of several rows, by their ids."""

        def changed(conversations: Sequence[Conversation]) -> tuple[Conversation, ...]:
            rows = [replace(c, **values[c.id]) if c.id in values else c for c in conversations]
            return tuple(sorted(rows, key=lambda c: c.updated, reverse=True))

        self._conversations, self._found = changed(self.conversations), changed(self.found)
        self.conversations_changed.emit()

    def add(self, message: Message, other: Message | None = None) -> None:
        """Add a message to the end of its conversation's branch.

        `other` is the other answer of an open comparison.
        """
        branch = (*self.branches.get(message.conversation, ()), message)
        self._compared = changed(self.compared, message.id, other)
        self._branches = changed(self.branches, message.conversation, branch)
        if message.conversation == self.current:
            self.message_added.emit(message)
            if other is not None:
                self.compared_changed.emit()

    def cut(self, conversation_id: int, keep: int) -> None:
        """Truncate a branch to its first `keep` messages; another branch follows."""
        branch = self.branches.get(conversation_id, ())
        gone = branch[keep:]
        self._branches = changed(self.branches, conversation_id, branch[:keep])
        for message in gone:
            self._compared = changed(self.compared, message.id, None)
        if conversation_id == self.current:
            for message in reversed(gone):
                self.message_removed.emit(message.id)

    def change(self, message: Message) -> None:
        """Replace the message with the same id."""
        self._put(message.conversation, message.id, lambda _: message)
        if message.conversation == self.current:
            self.message_changed.emit(message)

    def set_compared(self, message: Message, other: Message | None) -> None:
        """Replace a message of a branch, and open its comparison with `other`; None closes it."""
        self._compared = changed(self.compared, message.id, other)
        self.change(message)
        if message.conversation == self.current:
            self.compared_changed.emit()

    def add_text(self, conversation_id: int, message_id: int, text: str, parts: Parts) -> None:
        """Set the parts of a message to which text was added."""
        message = self._put(conversation_id, message_id, lambda old: replace(old, parts=parts))
        if message is not None and conversation_id == self.current:
            self.text_added.emit(message, text)

    def set_memory_start(self, conversation_id: int, message_id: int | None) -> None:
        """Set the first message that the model reads; None: it reads the whole conversation."""
        starts = dict(self.memory_starts)
        if message_id is None:
            starts.pop(conversation_id, None)
        else:
            starts[conversation_id] = message_id
        if starts != self.memory_starts:
            self._memory_starts = MappingProxyType(starts)
            if conversation_id == self.current:
                self.memory_changed.emit()

    def set_left_out(self, conversation_id: int, questions: frozenset[int]) -> None:
        """Set the questions whose passages the model no longer reads."""
        if questions != self.left_out.get(conversation_id, frozenset()):
            self._left_out = changed(self.left_out, conversation_id, questions or None)
            if conversation_id == self.current:
                self.memory_changed.emit()

    def set_model(self, model: ModelStatus) -> None:
        """Set the model's status; another model resets the speed."""
        if not is_same_load(self.model.loaded, model.loaded):
            self._last_speed = 0.0
        self._model = model
        self.model_changed.emit()

    def set_chat_model(self, chat_model: ChatModel | None) -> None:
        """Set the model of the shown chat; None: it is the one in use."""
        self._set(self.chat_model_changed, chat_model=chat_model)

    def set_generation(self, generation: Generation) -> None:
        """Set the progress of an answer; a request not known yet is added."""
        self._generations = changed(self.generations, generation.request, generation)
        self.generations_changed.emit()

    def end_generation(self, request: int) -> None:
        """Remove the answer of this request: it has ended."""
        self._generations = changed(self.generations, request, None)
        self.generations_changed.emit()

    def set_last_speed(self, tokens_per_second: float) -> None:
        """Set the speed of the answer that has just ended."""
        self._last_speed = tokens_per_second
        self.generations_changed.emit()

    def set_queued(self, message_id: int, conversation_id: int | None) -> None:
        """Mark an answer as not requested yet; without a conversation it is not queued any more."""
        self._queued = changed(self.queued, message_id, conversation_id)
        self.generations_changed.emit()

    def set_waiting(self, message_id: int, conversation_id: int, note: str) -> None:
        """Set the note on what an answer waits for; empty: it does not wait."""
        if self.waiting.get(message_id, "") == note:
            return
        self._waiting = changed(self.waiting, message_id, note or None)
        self.generations_changed.emit()
        if conversation_id == self.current:
            self.waiting_changed.emit(message_id, note)

    def set_served(self, served: Sequence[ServedModel]) -> None:
        """Set the models of engines elsewhere."""
        self._set(self.model_changed, served=tuple(served))

    def set_installed(self, installed: Sequence[ModelFile]) -> None:
        """Set the models to choose from."""
        self._set(self.model_changed, installed=tuple(installed))

    def set_draft(self, conversation_id: int | None, parts: Parts) -> None:
        """Set the draft of a conversation; None is the new chat."""
        self._drafts = changed(self.drafts, conversation_id, parts)
        self.draft_changed.emit(conversation_id)

    def set_outbox(self, conversation_id: int, messages: Sequence[WaitingMessage]) -> None:
        """Set the messages of a conversation that wait to be sent, the first one first."""
        self._outbox = changed(self.outbox, conversation_id, tuple(messages) or None)
        self.outbox_changed.emit(conversation_id)

    def set_devices(self, devices: tuple[DeviceInfo, ...]) -> None:
        """Set the devices of this computer beside the processor."""
        self._set(self.devices_changed, devices=devices)

    def set_notice(self, kind: str, notice: Notice | None) -> None:
        """Show the notice of a kind, or remove it."""
        if self.notices.get(kind) == notice:
            return
        self._notices = changed(self.notices, kind, notice)
        self.notices_changed.emit()

    def set_reading(self, message_id: int | None) -> None:
        """Set which message is read aloud."""
        self._set(self.reading_changed, reading=message_id)

    def set_can_read(self, offered: bool) -> None:
        """Set whether messages can be read aloud."""
        self._set(self.reading_changed, can_read=offered)

    def set_typed_tokens(self, tokens: int) -> None:
        """Set the number of tokens of the text in the composer."""
        self._set(self.typed_changed, typed_tokens=tokens)

    def set_titled(self, conversation_id: int | None) -> None:
        """Set the conversation for which the model writes a title; None: for none."""
        self._set(self.titled_changed, titled=conversation_id)

    def set_capabilities(self, capabilities: Capabilities) -> None:
        """Set what the engine can do."""
        self._set(self.capabilities_changed, capabilities=capabilities)

    def set_deletions(self, deletions: Sequence[Deletion], *, offered: int) -> None:
        """Set what Undo restores, and how many of these the sidebar offers to undo."""
        self._deletions, self._offered = tuple(deletions), offered
        self.deletions_changed.emit()

    def set_trash(self, trash: Sequence[TrashedConversation]) -> None:
        """Set the deleted conversations."""
        self._trash = tuple(trash)
        self.trash_changed.emit()

    def forget_branches(self, conversation_ids: Sequence[int]) -> None:
        """Drop the messages of conversations that are permanently removed."""
        for conversation_id in conversation_ids:
            self._set_branch(conversation_id, (), ())
        gone = frozenset(conversation_ids)
        left = {number: each for number, each in self.branches.items() if number not in gone}
        self._branches = MappingProxyType(left)

    def _set_branch(
        self, conversation: int, messages: Sequence[Message], others: Sequence[Message]
    ) -> None:
        by_id = {other.id: other for other in others}
        compared = {
            number: other
            for number, other in self.compared.items()
            if other.conversation != conversation
        }
        compared |= {m.id: by_id[m.compared] for m in messages if m.compared in by_id}
        self._compared = MappingProxyType(compared)
        self._branches = changed(self.branches, conversation, tuple(messages))

    def _put(
        self, conversation: int, message: int, new: Callable[[Message], Message]
    ) -> Message | None:
        """Replace a message of a branch or comparison; None when it is not there."""
        for number, other in self.compared.items():
            if other.id == message:
                self._compared = changed(self.compared, number, made := new(other))
                return made
        branch = list(self.branches.get(conversation, ()))
        for index in range(len(branch) - 1, -1, -1):
            if branch[index].id == message:
                branch[index] = made = new(branch[index])
                self._branches = changed(self.branches, conversation, tuple(branch))
                return made
        return None
