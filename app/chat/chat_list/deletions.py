"""Deleting chats, folders and single messages, the undo stack of the list, and the trash."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QTimer

from app.chat.chat_list.conversations import Conversations
from app.chat.chat_list.folders import Folders
from app.domain.chat import KEEP_DELETED_SECONDS
from app.domain.folders import chain, inside
from app.domain.message import Message
from app.state.chat import Deletion, State
from app.store.store import Store, StoredBranch
from app.store.writer import StoreQueue

UNDO_MILLISECONDS = 8000  # for which the sidebar offers Undo; Ctrl+Z works until the app closes
_DAY_MILLISECONDS = 24 * 3600 * 1000


class Deletions:
    """Deletes in the state at once, and in the store afterwards; `undo` takes the last one back."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        conversations: Conversations,
        folders: Folders,
        *,
        stop: Callable[[int], None],
        forget: Callable[[Sequence[int]], None],
        show: Callable[[int | None], None],
    ) -> None:
        """`stop` ends an answer, `forget` drops snapshots, and `show` opens a conversation."""
        self._state = state
        self._store_queue = store_queue
        self._conversations = conversations
        self._folders = folders
        folders.moved.connect(self.push)
        self._stop = stop
        self._forget = forget
        self._show = show
        self._offer = QTimer(state, singleShot=True, interval=UNDO_MILLISECONDS)
        # Set by what imports, and by what deletes connections:
        self.undid_import: Callable[[Deletion], None] = lambda _: None
        self.restore_connection: Callable[[str], None] = lambda _: None
        self._offer.timeout.connect(lambda: state.set_deletions(state.deletions, offered=0))
        self._daily = QTimer(state, interval=_DAY_MILLISECONDS)  # opening the store purges as well
        self._daily.timeout.connect(self._purge_old)
        self._daily.start()

    def read(self) -> None:
        """Read the trash from the store."""
        self._store_queue.read(lambda store: store.trash(), self._state.set_trash)

    def delete(
        self,
        conversation_ids: Sequence[int],
        folder_ids: Sequence[int] = (),
        *,
        can_undo: bool = True,
    ) -> None:
        """Stop the answers of conversations, and move them to the trash.

        Folders go with all that is in them. Without `can_undo`, Undo skips this.
        """
        state = self._state
        inner = inside(state.folders, folder_ids)
        chosen = frozenset(conversation_ids)
        within = [c.id for c in state.conversations if c.folder in inner and c.id not in chosen]
        ids, folders = (*conversation_ids, *within), [f for f in state.folders if f.id in inner]
        if not ids and not folders:
            return
        for conversation_id in ids:
            self._stop(conversation_id)
        self._folders.remove(inner)
        self._conversations.remove(ids)
        gone = tuple(folder.id for folder in folders)
        self._store_queue.write(lambda store: store.delete(ids, gone))
        if can_undo:
            self.push(Deletion(ids, folders=tuple(folders)))
        self._forget(ids)
        self.read()
        if self._state.current in ids:
            self._show(None)

    def delete_imported(self, made: Deletion, *, can_undo: bool = True) -> None:
        """Delete what an import made, but no folder with something else."""
        state = self._state
        state.set_deletions([one for one in state.deletions if one is not made], offered=0)
        others = [c.folder for c in state.conversations if c.id not in made.imported]
        others += [each.id for each in state.folders if each.id not in made.imported_folders]
        kept = {each.id for other in others for each in chain(state.folders, other)}
        chats = [c.id for c in state.conversations if c.id in made.imported]
        gone = [each for each in made.imported_folders if each not in kept]
        self.delete(chats, gone, can_undo=can_undo)

    def undo(self) -> None:
        """Undo the last deletion, move or import that is not undone yet.

        A single conversation that comes back is shown. An undone import is in the trash, and the
        next Undo takes back what was before it.
        """
        state = self._state
        if not state.deletions:
            return
        *before, last = state.deletions
        if last.conversation in state.busy_conversations:
            return  # an answer is being written into the branch
        offered = max(state.offered - 1, 0)
        state.set_deletions(before, offered=offered)
        if offered:
            self._offer.start()
        if last.message is not None and last.conversation is not None:
            self._restore_message(last.message, last.conversation)
        elif last.imported or last.imported_folders:
            self.undid_import(last)
            self.delete_imported(last, can_undo=False)
        elif last.connection is not None:
            self.restore_connection(last.connection.id)
        elif last.moved or last.moved_folders:
            self._folders.put_back(last.moved, last.moved_folders)
        else:
            known = {folder.id for folder in state.folders}  # came back with a restored chat
            self._folders.add([each for each in last.folders if each.id not in known])
            self._restore(last.conversations, tuple(folder.id for folder in last.folders))

    def delete_message(self, message_id: int) -> None:
        """Delete one message of the shown conversation, unless an answer is being written there."""
        state = self._state
        message = next((each for each in state.messages if each.id == message_id), None)
        if state.busy:
            return
        if message is None:
            self._delete_compared(message_id)
            return
        left = [
            replace(each, parent=message.parent) if each.parent == message_id else each
            for each in state.messages
            if each.id != message_id
        ]
        state.set_branch(message.conversation, left, tuple(state.compared.values()))
        self._delete_stored(message)

    def _delete_compared(self, message_id: int) -> None:
        """Delete the other answer of an open comparison of the shown branch, which ends it."""
        for shown in self._state.messages:
            other = self._state.compared.get(shown.id)
            if other is not None and other.id == message_id:
                self._state.set_compared(replace(shown, compared=0, undecided=False), None)
                self._delete_stored(other)
                return

    def _delete_stored(self, message: Message) -> None:
        self._store_queue.write(lambda store: store.delete_message(message.id))
        self.push(Deletion((), message.id, message.conversation))
        self._read_branch(message.conversation)

    def _restore_message(self, message_id: int, conversation_id: int) -> None:
        self._store_queue.write(lambda store: store.restore_message(message_id))
        if conversation_id != self._state.current:
            self._show(conversation_id)
        self._read_branch(conversation_id)

    def _read_branch(self, conversation_id: int) -> None:
        """Read a branch again; its siblings are counted anew, or another one is shown."""
        state, store_queue = self._state, self._store_queue
        before = [each.id for each in state.branches.get(conversation_id, ())]

        def read(store: Store) -> StoredBranch:
            return store.with_others(store.branch(conversation_id))

        def show(branch: StoredBranch) -> None:
            now = [each.id for each in state.branches.get(conversation_id, ())]
            if conversation_id in state.busy_conversations:
                return  # a message was sent meanwhile: the state is newer
            if now != before:
                self._read_branch(conversation_id)
                return
            state.set_branch(conversation_id, *branch)

        store_queue.read(read, show, only_if_saved=True)

    def restore(self, conversation_ids: Sequence[int]) -> None:
        """Restore conversations of the trash; a single one is shown."""
        self._drop_from_stack(conversation_ids)
        self._restore(conversation_ids)

    def remove(self, conversation_ids: Sequence[int]) -> None:
        """Permanently remove conversations of the trash."""
        ids = tuple(conversation_ids)
        self._drop_from_stack(ids, messages=True)
        self._state.set_trash([each for each in self._state.trash if each.id not in ids])
        self._store_queue.write(lambda store: store.purge(ids))
        self._state.forget_branches(ids)
        self.read()

    def _restore(self, conversation_ids: Sequence[int], folders: tuple[int, ...] = ()) -> None:
        ids = tuple(conversation_ids)
        self._state.set_trash([each for each in self._state.trash if each.id not in ids])
        self._store_queue.write(lambda store: store.restore(ids, folders))
        self._folders.read()  # those around a chat come back with it
        self._conversations.read()
        self.read()
        if len(ids) == 1:
            self._show(ids[0])

    def _purge_old(self) -> None:
        before = time.time() - KEEP_DELETED_SECONDS
        self._store_queue.write(lambda store: store.purge_deleted(KEEP_DELETED_SECONDS))
        self._state.forget_branches([one.id for one in self._state.trash if one.deleted <= before])
        self.read()

    def _drop_from_stack(self, conversation_ids: Sequence[int], *, messages: bool = False) -> None:
        """Make Undo skip these conversations, and with `messages` those deleted in them."""
        kept: list[Deletion] = []
        for one in self._state.deletions:
            left = tuple(each for each in one.conversations if each not in conversation_ids)
            gone = messages and one.conversation in conversation_ids
            other = one.folders or one.moved or one.moved_folders
            other = other or one.imported or one.imported_folders or one.connection
            if left or other or (one.message is not None and not gone):
                kept.append(replace(one, conversations=left))
        self._state.set_deletions(kept, offered=0)

    def push(self, deletion: Deletion) -> None:
        """Let the next Undo take this back; the sidebar offers it, unless another place does."""
        state = self._state
        if deletion.imported or deletion.imported_folders or deletion.connection:
            state.set_deletions((*state.deletions, deletion), offered=0)
            return
        state.set_deletions((*state.deletions, deletion), offered=state.offered + 1)
        self._offer.start()
