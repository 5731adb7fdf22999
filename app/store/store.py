"""Conversations in SQLite, each a tree of messages; answers are stored while they stream.

Each piece of a streaming answer is a row in `chunk`; `finish` merges them into its parts. After a
crash, the next start merges the chunks and marks the answer as interrupted. A store may only be
used on the thread that opened it.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from app.domain.answer_details import AnswerDetails, AnswerRecord, details_text
from app.domain.chat import (
    KEEP_DELETED_SECONDS,
    Conversation,
    Folder,
    Hit,
    TrashedConversation,
)
from app.domain.chat_settings import AdapterChoice
from app.domain.chat_tree import ChatTree, FolderRecord
from app.domain.ids import id_seen, new_id
from app.domain.message import AdapterMark, Message, MessageState, StopReason
from app.domain.parts import Content, ErrorPart, FilePart, Part, Parts, parts_of
from app.domain.unsent import Unsent
from app.store import adapters as store_adapters
from app.store import chat_trees, comparisons, deleted_messages, folder_records, folders
from app.store.adapters import StoredAdapters
from app.store.blobs import Blobs, names_in
from app.store.chat_trees import ImportPiece, Known
from app.store.copies import copy_conversation
from app.store.folder_records import NO_FOLDERS, FolderRecords
from app.store.hits import best_hits
from app.store.lock import lock_store, set_aside
from app.store.queries import (
    BRANCH,
    IMPORTING,
    NEW_CHAT,
    NEW_CHAT_FOLDER,
    add_part,
    any_deleted,
    find,
    find_conversations,
    find_draft,
    find_record,
    insert_conversation,
    insert_message,
    last_answers,
    last_id,
    merge_chunks,
    purge_deleted,
    rename,
    replace_parts,
    require_conversation,
    rewrite_conversation_row,
    rewrite_row,
    set_branch_tip,
    set_draft,
    set_record,
    set_settings,
    show_last_used_below,
    sibling_ids,
    to_message,
    touch,
    update_conversation_row,
)
from app.store.schema import (
    DamagedStore,
    ReadOnlyStore,
    StoreError,
    connect,
    connect_copy,
    remove_backups,
    translate_errors,
)
from app.store.search import MAX_WORD_LENGTH, MAX_WORDS, clean
from app.store.user_records import UserRecords
from app.system.text_search import query_terms
from app.system.translation import tr
from engine import FileLock, Role, disk_files

if TYPE_CHECKING:
    from app.store.salvage import Salvaged

__all__ = [
    "KEEP_DELETED_SECONDS",
    "AnswerDetails",
    "AnswerRecord",
    "Conversation",
    "DamagedStore",
    "Hit",
    "Message",
    "MessageState",
    "ReadOnlyStore",
    "StopReason",
    "Store",
    "StoreError",
    "StoredAdapters",
    "StoredBranch",
    "TrashedConversation",
    "Unsent",
]

_log = logging.getLogger(__name__)


class StoredBranch(NamedTuple):
    """A branch as it was stored."""

    messages: list[Message]
    others: list[Message]  # the other answers of its open comparisons


class Store(UserRecords):
    """The conversations of one database file; methods raise only `StoreError`."""

    def __init__(self, path: Path, lock: FileLock | None, database: sqlite3.Connection) -> None:
        self._path = path
        self._lock = lock
        self._database = database
        self.blobs = Blobs(path, writable=lock is not None)

    # --- the file ---------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open or create the store; answers cut off by a crash are interrupted, imports removed."""
        with translate_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = lock_store(path)
            try:
                salvaged = _salvaged(path)
                if salvaged.exists() and not path.exists():  # a repair was interrupted
                    disk_files.replace(salvaged, path)
                store = cls(path, lock, connect(path))
            except BaseException:
                lock.release()
                raise
        return store._recovered()

    @classmethod
    def open_copy(cls, path: Path) -> Store:
        """Open a temporary copy of a read-only or newer store; changes to it are discarded."""
        from app.store.newer import copy_newer

        with translate_errors(path):
            store = cls(path, None, connect_copy(path, copy_newer))
        return store._recovered()

    @staticmethod
    def salvage(path_from: Path, path_to: Path) -> Salvaged:
        """Copy the readable rows of a store into a new one; `path_to` must not exist."""
        with translate_errors(path_to):
            if path_to.exists():
                raise StoreError(
                    tr("There is already a file at {path}.", path=path_to),
                    tr("Move it aside first, then try again."),
                )
            from app.store.salvage import salvage

            return salvage(path_from, path_to)

    @staticmethod
    def repair(path: Path) -> tuple[Path, Salvaged | None]:
        """Replace a damaged store by a salvaged copy; returns the old file's path, and counts.

        The copy is complete before the damaged file is renamed, so that a crash loses nothing.
        """
        found: Salvaged | None = None
        with translate_errors(path):
            salvaged = _salvaged(path)
            disk_files.delete(salvaged)
            try:
                found = Store.salvage(path, salvaged)
            except StoreError as error:
                _log.warning("nothing could be read of a damaged store: %s", type(error).__name__)
            aside = set_aside(path)
            if found is not None:
                disk_files.replace(salvaged, path)
        return aside, found

    def rewrite_conversation(self, conversation: Conversation) -> None:
        """Insert a conversation with its id, unless it exists."""
        with self._writing(durable=True) as database:
            rewrite_conversation_row(database, conversation)

    def update_conversations(self, conversations: Sequence[Conversation]) -> None:
        """Set all of conversations that exist but their times and branches."""
        with self._writing(durable=True) as database:
            for conversation in conversations:
                update_conversation_row(database, conversation)

    def rewrite_message(self, message: Message) -> None:
        """Insert a message as `rewrite_conversation` does, and make it the branch_tip."""
        with self._writing(durable=True) as database:
            rewrite_row(database, message)
            set_branch_tip(database, message.conversation, message.id)

    def close(self) -> None:
        """Close the database and release the lock; closing twice is allowed."""
        try:
            with translate_errors(self._path):
                self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """The database, with its errors translate_errors."""
        with translate_errors(self._path):
            yield self._database

    @contextmanager
    def _writing(self, *, durable: bool) -> Generator[sqlite3.Connection]:
        """A write transaction; a durable one is synced to the disk when it returns.

        Others survive a crash of the app, and after a later durable one also a power cut.
        """
        with translate_errors(self._path):
            database = self._database
            if durable:
                database.execute("PRAGMA synchronous = FULL")
            try:
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                if durable:
                    database.execute("PRAGMA synchronous = NORMAL")

    def _recovered(self) -> Store:
        """Recover streaming answers and return this store; closes it if that fails."""
        try:
            self._recover()
        except BaseException:
            self.close()
            raise
        return self

    def _recover(self) -> None:
        with self._reading() as database:
            id_seen(last_id(database))
            cut_off = chat_trees.incomplete(database)
            left = [
                row[0]
                for row in database.execute("SELECT id FROM message WHERE state = 'streaming'")
            ]
        if not (left or cut_off):
            return
        with self._writing(durable=True) as database:
            chat_trees.remove_imported(database, cut_off)
            for message in left:
                merge_chunks(database, message, MessageState.INTERRUPTED)

    # --- conversations ----------------------------------------------------------------------

    def conversations(self, query: str = "") -> list[Conversation]:
        """Conversations, the last active first; with a query those with all its words and phrases.

        A word matches anywhere in the title or any message of any branch, also inside longer
        words, ignoring case and accents.
        """
        with self._reading() as database:
            return find_conversations(database, query_terms(clean(query)))

    def hits(self, query: str, conversation_ids: Sequence[int]) -> dict[int, Hit]:
        """By conversation, the message that fits a query best; none if only the title does."""
        words = [word[:MAX_WORD_LENGTH] for word in query_terms(clean(query))[:MAX_WORDS]]
        with self._reading() as database:
            return best_hits(database, words, conversation_ids)

    def create_conversation(
        self, title: str, settings: str = "", *, id: int | None = None, folder: int | None = None
    ) -> Conversation:
        """Create an empty conversation with its settings as JSON, unless its id exists."""
        with self._writing(durable=True) as database:
            number, now = id or new_id(), time.time()
            made = insert_conversation(database, number, clean(title), now, clean(settings))
            if folder is not None:
                folders.set_place(database, number, folder, archived=False)
            return made

    def copy_conversation(self, source: int, made: Conversation, until: int | None = None) -> None:
        """Insert `made` with copies of all messages of a conversation.

        With `until`, only of the branch from the first message to this one.
        """
        with self._writing(durable=True) as database:
            copy_conversation(database, source, made, until)

    def rename(self, conversation_id: int, title: str) -> None:
        """Change the title of a conversation."""
        with self._writing(durable=True) as database:
            rename(database, conversation_id, clean(title))

    def set_settings(self, conversation_id: int | None, text: str) -> None:
        """Save the settings of a conversation as JSON; None is the new chat."""
        with self._writing(durable=False) as database:
            set_settings(database, conversation_id, text)

    def new_chat_settings(self) -> str:
        """The settings of the chat that is not begun yet, as JSON."""
        with self._reading() as database:
            return find_record(database, NEW_CHAT)

    def set_new_chat_folder(self, folder_id: int | None) -> None:
        """Save the folder in which the chat that is not begun yet will be; None: in none."""
        with self._writing(durable=False) as database:
            set_record(database, NEW_CHAT_FOLDER, "" if folder_id is None else str(folder_id))

    def new_chat_folder(self) -> int | None:
        """The folder in which the chat that is not begun yet will be, which may be deleted."""
        with self._reading() as database:
            text = find_record(database, NEW_CHAT_FOLDER)
        return int(text) if text.isdecimal() and len(text) < 20 else None

    def delete(self, conversation_ids: Sequence[int], folder_ids: Sequence[int] = ()) -> None:
        """Mark conversations and folders as deleted; `restore` undoes it until they are purged."""
        with self._writing(durable=True) as database:
            folders.set_deleted(database, conversation_ids, folder_ids, time.time())

    def restore(self, conversation_ids: Sequence[int], folder_ids: Sequence[int] = ()) -> None:
        """Restore deleted conversations and folders, and the folders that they are in."""
        with self._writing(durable=True) as database:
            folders.set_deleted(database, conversation_ids, folder_ids, None)

    def trash(self) -> list[TrashedConversation]:
        """The deleted conversations, the last deleted first."""
        with self._reading() as database:
            rows = database.execute(
                f"SELECT id, title, deleted FROM conversation WHERE deleted > {IMPORTING}"
                " ORDER BY deleted DESC, id DESC"
            )
            return [TrashedConversation(*row) for row in rows]

    def purge(self, conversation_ids: Sequence[int]) -> None:
        """Permanently remove these conversations, as far as they are deleted."""
        with self._purging() as database:
            rows = [(number,) for number in conversation_ids]
            delete = "DELETE FROM conversation WHERE id = ? AND deleted IS NOT NULL"
            database.executemany(delete, rows)

    def purge_deleted(self, older_than_seconds: float) -> None:
        """Permanently remove conversations, folders and messages deleted longer ago than this."""
        before = time.time() - older_than_seconds
        with self._reading() as database:
            some = any_deleted(database, before)
        if some:
            with self._purging() as database:
                purge_deleted(database, before)
        else:
            with translate_errors(self._path):
                remove_backups(self._path, before)

    @contextmanager
    def _purging(self) -> Generator[sqlite3.Connection]:
        """A transaction that removes rows; what only they name goes, too, and no copy is left."""
        with self._writing(durable=True) as database:
            named = names_in(database) if self.blobs else set[str]()
            yield database
        with translate_errors(self._path):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log has the rows
            remove_backups(self._path, math.inf)  # the copies made before a migration have them
            if named:
                self.blobs.remove(named - names_in(self._database))

    def named_blobs(self) -> set[str]:
        """The SHA-256 of all files that something in the store names, there or not."""
        with self._reading() as database:
            return names_in(database)

    def remove_unnamed_blobs(self) -> None:
        """Remove the blobs that nothing names, such as those of messages that were never sent."""
        if self.blobs:
            self.blobs.remove_unnamed(self.named_blobs())

    # --- folders ----------------------------------------------------------------------------

    def folders(self) -> list[Folder]:
        """The folders, by position."""
        with self._reading() as database:
            return folders.read_folders(database)

    def save_folders(self, changed: Sequence[Folder]) -> None:
        """Insert folders, or change them; parents come before their children."""
        with self._writing(durable=True) as database:
            for folder in changed:
                folders.save_folder(database, folder)

    def set_places(self, places: Sequence[tuple[int, int | None, bool]]) -> None:
        """Set the folder of conversations, and whether they are archived."""
        with self._writing(durable=True) as database:
            for number, folder, archived in places:
                folders.set_place(database, number, folder, archived=archived)

    def set_pinned(self, conversation_ids: Sequence[int], *, pinned: bool) -> None:
        """List conversations first, or no longer."""
        with self._writing(durable=True) as database:
            for number in conversation_ids:
                folders.set_pinned(database, number, pinned=pinned)

    # --- messages ---------------------------------------------------------------------------

    def branch(self, conversation_id: int) -> list[Message]:
        """The shown branch, from the first message to the branch_tip."""
        with self._reading() as database:
            rows = database.execute(BRANCH, (conversation_id,)).fetchall()
            if not rows:
                require_conversation(database, conversation_id)
            return [to_message(database, row) for row in rows]

    def message(self, message_id: int) -> Message:
        """One message."""
        with self._reading() as database:
            return find(database, message_id)

    def add_message(
        self,
        conversation_id: int,
        parent: int | None,
        role: Role,
        content: Content,
        state: MessageState = MessageState.COMPLETE,
        model: str = "",
        *,
        id: int | None = None,
    ) -> Message:
        """Add a message below `parent` (None: at the root) and make it the branch_tip.

        If the parent already has children, this starts a new branch. `content` is its parts, or a
        text from which they are made. `id` None: a new one; nothing changes if it exists.
        """
        number, parts = id or new_id(), parts_of(role, content)
        with self._writing(durable=True) as database:
            if insert_message(database, number, conversation_id, parent, role, parts, state, model):
                set_branch_tip(database, conversation_id, number)
                touch(database, conversation_id)
            return find(database, number)

    def set_parts(self, message_id: int, parts: Parts) -> None:
        """Replace the parts of a message that is not being written."""
        with self._writing(durable=True) as database:
            replace_parts(database, message_id, parts)

    def set_answer_parts(self, message_id: int, parts: Parts) -> None:
        """Replace the parts of an answer that is being written, with all its text so far."""
        with self._writing(durable=True) as database:
            database.execute("DELETE FROM chunk WHERE message = ?", (message_id,))
            replace_parts(database, message_id, parts)

    def add_part(self, message_id: int, part: Part) -> None:
        """Append a part to an answer; a finished one becomes streaming again.

        Its cost does not depend on the others.
        """
        with self._writing(durable=True) as database:
            add_part(database, message_id, part)

    def append_text(self, message_id: int, text: str) -> None:
        """Append a chunk to a streaming message; a finished one becomes streaming again.

        Its cost does not depend on the length. If it raises, nothing was stored.
        """
        with self._writing(durable=False) as database:
            database.execute(
                "UPDATE message SET state = 'streaming' WHERE id = ? AND state <> 'streaming'",
                (message_id,),
            )
            database.execute(
                "INSERT INTO chunk(message, seq, text) VALUES (?1,"
                " (SELECT coalesce(max(seq), 0) + 1 FROM chunk WHERE message = ?1), ?2)",
                (message_id, clean(text)),
            )

    def set_model_name(self, message_id: int, name: str) -> None:
        """Set the displayed name of the model that writes an answer."""
        with self._writing(durable=False) as database:
            database.execute("UPDATE message SET model = ? WHERE id = ?", (clean(name), message_id))

    def finish(
        self,
        message_id: int,
        state: MessageState,
        *,
        stop: str = "",
        error: ErrorPart | None = None,
        prompt_tokens: int = 0,
        generated_tokens: int = 0,
        seconds: float = 0.0,
        details: AnswerDetails | None = None,
    ) -> Message:
        """End a streaming message: merge its chunks, index the text, and sync it to the disk.

        `stop` says why it was stopped, `error` why it failed.
        """
        assert state is not MessageState.STREAMING
        with self._writing(durable=True) as database:
            merge_chunks(database, message_id, state, error)
            database.execute(
                "UPDATE message SET stop = ?, prompt_tokens = ?, generated_tokens = ?, seconds = ?,"
                " details = CASE WHEN compared AND ?5 = '' THEN details ELSE ?5 END WHERE id = ?",
                (clean(stop), prompt_tokens, generated_tokens, seconds,
                clean(details_text(details)), message_id),
            )  # fmt: skip
            message = find(database, message_id)
            touch(database, message.conversation)
            return message

    def select_sibling(self, message_id: int, step: int) -> list[Message]:
        """Show the sibling `step` positions after (negative: before) this message.

        `step` is limited to the first and last one. Below it, the last used branch is shown.
        """
        with self._writing(durable=True) as database:
            message = find(database, message_id)
            siblings = sibling_ids(database, message)
            place = min(max(siblings.index(message_id) + step, 0), len(siblings) - 1)
            show_last_used_below(database, message.conversation, siblings[place])
        return self.branch(message.conversation)

    def show_branch(self, conversation_id: int, message_id: int) -> list[Message]:
        """Show the last used branch with a message, unless the shown branch contains it."""
        shown = self.branch(conversation_id)
        if any(message.id == message_id for message in shown):
            return shown
        with self._writing(durable=True) as database:
            show_last_used_below(database, conversation_id, message_id)
        return self.branch(conversation_id)

    def delete_message(self, message_id: int) -> None:
        """Remove one message; what follows it stays, below its parent."""
        with self._writing(durable=True) as database:
            deleted_messages.delete_message(database, message_id)

    def restore_message(self, message_id: int) -> None:
        """Undo `delete_message`."""
        with self._writing(durable=True) as database:
            deleted_messages.restore_message(database, message_id)

    # --- comparisons ------------------------------------------------------------------------

    def add_comparison(
        self,
        conversation_id: int,
        parent: int,
        model: str,
        details: Sequence[AnswerDetails],
        *,
        ids: tuple[int, int] | None = None,
    ) -> tuple[Message, Message]:
        """Add two streaming answers below `parent`, as an open comparison; the first is the branch_tip.

        `ids` as the id of `add_message`.
        """
        both = ids or (new_id(), new_id())
        with self._writing(durable=True) as database:
            return comparisons.add_both(database, conversation_id, parent, model, details, both)

    def others(self, messages: Sequence[Message]) -> list[Message]:
        """The other answer of each open comparison among these messages."""
        with self._reading() as database:
            return [find(database, m.compared) for m in messages if m.undecided]

    def with_others(self, messages: list[Message]) -> StoredBranch:
        """Messages of a branch, and what they are compared with."""
        return StoredBranch(messages, self.others(messages))

    def keep(self, message_id: int) -> None:
        """Close the comparison of an answer, and show the last used branch with it."""
        with self._writing(durable=True) as database:
            comparisons.keep(database, message_id)

    def reopen_comparison(self, message_id: int) -> None:
        """Open the comparison of an answer again."""
        with self._writing(durable=True) as database:
            comparisons.reopen(database, message_id)

    def last_answers(self, most: int) -> list[AnswerRecord]:
        """The figures of the last answers of all conversations, the last one last."""
        with self._reading() as database:
            return last_answers(database, most)

    # --- whole chats --------------------------------------------------------------------------

    def tree(self, conversation_id: int) -> ChatTree:
        """A chat with the messages of all branches."""
        with self._reading() as database:
            return chat_trees.read_tree(database, conversation_id)

    def chat_ids(self) -> list[int]:
        """The ids of all chats that are not deleted, archived ones too."""
        with self._reading() as database:
            return chat_trees.chat_ids(database)

    def origins(self) -> dict[str, Known]:
        """What is known of each origin of a chat, without deleted chats."""
        with self._reading() as database:
            return chat_trees.origins(database)

    def folder_records(self, conversation_ids: Sequence[int]) -> list[FolderRecord]:
        """The folders around these chats, or all if these are all chats; parents come first."""
        with self._reading() as database:
            return folder_records.read_records(database, conversation_ids)

    def attached(self, conversation_ids: Sequence[int]) -> dict[str, None]:
        """The SHA-256 of the files and images of chats, each once."""
        with self._reading() as database:
            return chat_trees.attached(database, conversation_ids)

    def recent_files(self, most: int) -> list[FilePart]:
        """The files attached last in all chats, the newest first, each once and without its text."""
        with self._reading() as database:
            return chat_trees.recent_files(database, most)

    def import_pieces(
        self, pieces: Sequence[ImportPiece], records: FolderRecords = NO_FOLDERS
    ) -> list[int]:
        """Insert pieces of chats, all or none; returns the ids of the folders made for them."""
        with self._writing(durable=False) as database:
            return chat_trees.import_pieces(database, pieces, records)

    def import_folder(self, path: Sequence[str], records: FolderRecords = NO_FOLDERS) -> list[int]:
        """Make a folder that no chat is in; returns the ids of those made."""
        with self._writing(durable=False) as database:
            return folder_records.make_folders(database, path, records)[1]

    def remove_imported(
        self, conversation_ids: Sequence[int], folder_ids: Sequence[int] = ()
    ) -> None:
        """Remove chats of an import that was cancelled, and the folders it made."""
        with self._writing(durable=True) as database:
            chat_trees.remove_imported(database, conversation_ids, folder_ids)

    # --- drafts -----------------------------------------------------------------------------

    def set_draft(self, conversation_id: int | None, unsent: Unsent) -> None:
        """Save what is unsent in a conversation; None is the new chat."""
        with self._writing(durable=False) as database:
            set_draft(database, conversation_id or 0, unsent)

    def draft(self, conversation_id: int | None) -> Unsent:
        """What is unsent in a conversation."""
        with self._reading() as database:
            return find_draft(database, conversation_id or 0)

    # --- adapters ---------------------------------------------------------------------------

    def adapters(self) -> StoredAdapters:
        """Known adapter files, and the mixes."""
        with self._reading() as database:
            return store_adapters.read_adapters(database)

    def set_adapter_mix(self, name: str, uses: Sequence[AdapterChoice]) -> None:
        """Save a mix; an empty one is deleted."""
        with self._writing(durable=True) as database:
            store_adapters.set_mix(database, name, uses)

    def set_known_adapter(self, path: Path, name: str) -> None:
        """Save an adapter file and its name."""
        with self._writing(durable=False) as database:
            store_adapters.set_known(database, path, name)

    def mark_message(self, message_id: int, marks: Sequence[AdapterMark]) -> None:
        """Save which adapters an answer is generated with."""
        with self._writing(durable=False) as database:
            store_adapters.set_marks(database, message_id, marks)


def _salvaged(path: Path) -> Path:
    """Path of the salvaged copy until the damaged store is renamed."""
    return path.with_name(path.name + ".salvaged")
