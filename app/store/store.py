"""Conversations in SQLite: a tree of messages each, and nothing typed or generated is lost.

An answer is stored while it streams, each piece as a row of its own, and becomes one text when it
ends; what a crash leaves unfinished is put together at the next start and marked interrupted.
A store belongs to the thread that opened it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.store import adapters as store_adapters
from app.store.adapters import AdapterMark, StoredAdapters, StoredUse
from app.store.lock import lock_store, set_aside
from app.store.queries import (
    BRANCH,
    CONVERSATION,
    LAST_USED_BELOW,
    Conversation,
    Message,
    MessageState,
    find,
    fold_chunks,
    put_back,
    set_leaf,
    sibling_ids,
    to_message,
    touch,
)
from app.store.salvage import Salvaged, salvage
from app.store.schema import (
    DamagedStore,
    Gone,
    ReadOnlyStore,
    StoreError,
    connect,
    connect_copy,
    translated,
)
from app.store.search import LONGEST_WORD, MOST_WORDS, clean, fold, holds, index
from app.system.file_lock import FileLock
from engine import Role

__all__ = [
    "AdapterMark",
    "Conversation",
    "DamagedStore",
    "Message",
    "MessageState",
    "ReadOnlyStore",
    "Salvaged",
    "Store",
    "StoreError",
    "StoredAdapters",
    "StoredUse",
]

_log = logging.getLogger(__name__)


class Store:
    """The conversations of one file; every method raises `StoreError` and nothing else."""

    def __init__(self, path: Path, lock: FileLock | None, database: sqlite3.Connection) -> None:
        self._path = path
        self._lock = lock
        self._database = database

    # --- the file ---------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open or create the store; answers that a crash cut off become interrupted messages."""
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = lock_store(path)
            try:
                salvaged = _salvaged(path)
                if salvaged.exists() and not path.exists():  # a repair was cut off
                    os.replace(salvaged, path)
                store = cls(path, lock, connect(path))
            except BaseException:
                lock.release()
                raise
        return store._recovered()

    @classmethod
    def open_copy(cls, path: Path) -> Store:
        """Open a private copy of a store that cannot be written; what is changed in it is lost."""
        with translated(path):
            store = cls(path, None, connect_copy(path))
        return store._recovered()

    @staticmethod
    def salvage(path_from: Path, path_to: Path) -> Salvaged:
        """Copy what can still be read of a store into a new one; `path_to` must be free."""
        with translated(path_to):
            if path_to.exists():
                raise StoreError(
                    f"There is already a file at {path_to}.", "Move it aside first, then try again."
                )
            return salvage(path_from, path_to)

    @staticmethod
    def repair(path: Path) -> tuple[Path, Salvaged | None]:
        """Put a new store in the place of a damaged one; where that is now, and what was in it.

        What can be read is complete beside it before it moves, so that a crash loses nothing.
        """
        found: Salvaged | None = None
        with translated(path):
            salvaged = _salvaged(path)
            salvaged.unlink(missing_ok=True)
            try:
                found = Store.salvage(path, salvaged)
            except StoreError as error:
                _log.warning("nothing could be read of a damaged store: %s", type(error).__name__)
            aside = set_aside(path)
            if found is not None:
                os.replace(salvaged, path)
        return aside, found

    def reserve(self, conversation_id: int, message_id: int) -> None:
        """Never give these numbers, or smaller ones, to something new."""
        with self._writing(durable=True) as database:
            for table, last in (("conversation", conversation_id), ("message", message_id)):
                known = database.execute(
                    "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (last, table)
                )
                if not known.rowcount:
                    database.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, last))

    def put_back_conversation(self, conversation: Conversation) -> int:
        """Add a conversation under its number (0: a new one), unless it is there; its number."""
        title = clean(conversation.title)
        with self._writing(durable=True) as database:
            added = database.execute(
                "INSERT OR IGNORE INTO conversation(id, title, folded, created, updated)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    conversation.id or None,
                    title,
                    fold(title),
                    conversation.created,
                    conversation.updated,
                ),
            )
            return conversation.id or added.lastrowid or 0

    def put_back_message(self, message: Message) -> int:
        """Add a message as `put_back_conversation` does, and make it the leaf."""
        with self._writing(durable=True) as database:
            number = put_back(database, message)
            set_leaf(database, message.conversation, number)
            return number

    def close(self) -> None:
        """Close the file and let others open it; closing twice is allowed."""
        try:
            with translated(self._path):
                self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """The database, with its errors translated."""
        with translated(self._path):
            yield self._database

    @contextmanager
    def _writing(self, *, durable: bool) -> Generator[sqlite3.Connection]:
        """One transaction; a durable one has reached the disk when it returns.

        The others survive a crash of the app, and a power cut once a durable one followed.
        """
        with translated(self._path):
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
        """This store once what a crash left streaming is put together; closed if that fails."""
        try:
            self._recover()
        except BaseException:
            self.close()
            raise
        return self

    def _recover(self) -> None:
        with self._reading() as database:
            left = [
                row[0]
                for row in database.execute("SELECT id FROM message WHERE state = 'streaming'")
            ]
        if not left:
            return
        with self._writing(durable=True) as database:
            for message in left:
                fold_chunks(database, message, MessageState.INTERRUPTED)

    # --- conversations ----------------------------------------------------------------------

    def conversations(self, query: str = "") -> list[Conversation]:
        """Conversations, the last active first; with a query those that hold all its words.

        A word is found anywhere in the title or in any message of any branch, inside longer words
        too, whatever the case and the accents.
        """
        words = fold(clean(query)).split()
        where, values = "WHERE deleted IS NULL", list[str]()
        for word in words[:MOST_WORDS]:
            condition, bound = holds(word[:LONGEST_WORD])
            where += f" AND (instr(folded, ?) OR id IN (SELECT conversation FROM message WHERE id IN ({condition})))"
            values += [word[:LONGEST_WORD], *bound]
        with self._reading() as database:
            rows = database.execute(
                f"{CONVERSATION} {where} ORDER BY updated DESC, id DESC", values
            )
            return [Conversation(*row) for row in rows]

    def create_conversation(self, title: str) -> Conversation:
        """Begin an empty conversation."""
        title, now = clean(title), time.time()
        with self._writing(durable=True) as database:
            created = database.execute(
                "INSERT INTO conversation(title, folded, created, updated) VALUES (?, ?, ?, ?)",
                (title, fold(title), now, now),
            )
            return Conversation(created.lastrowid or 0, title, now, now, None)

    def rename(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title."""
        title = clean(title)
        with self._writing(durable=True) as database:
            renamed = database.execute(
                "UPDATE conversation SET title = ?, folded = ? WHERE id = ?",
                (title, fold(title), conversation_id),
            )
            if not renamed.rowcount:
                raise Gone

    def delete(self, conversation_ids: Sequence[int]) -> None:
        """Take conversations out of the list; `restore` brings them back until they are purged."""
        self._set_deleted(conversation_ids, time.time())

    def restore(self, conversation_ids: Sequence[int]) -> None:
        """Bring deleted conversations back into the list."""
        self._set_deleted(conversation_ids, None)

    def _set_deleted(self, conversation_ids: Sequence[int], when: float | None) -> None:
        with self._writing(durable=True) as database:
            database.executemany(
                "UPDATE conversation SET deleted = ? WHERE id = ?",
                [(when, conversation_id) for conversation_id in conversation_ids],
            )

    def purge_deleted(self, older_than_seconds: float) -> None:
        """Remove for good what was deleted longer ago than this."""
        with self._writing(durable=True) as database:
            database.execute(
                "DELETE FROM conversation WHERE deleted <= ?", (time.time() - older_than_seconds,)
            )

    # --- messages ---------------------------------------------------------------------------

    def branch(self, conversation_id: int) -> list[Message]:
        """The shown branch, from the first message to the leaf."""
        with self._reading() as database:
            return [
                to_message(database, row) for row in database.execute(BRANCH, (conversation_id,))
            ]

    def add_message(
        self,
        conversation_id: int,
        parent: int | None,
        role: Role,
        text: str,
        state: MessageState = MessageState.COMPLETE,
        model: str = "",
    ) -> Message:
        """Add a message below `parent` (None: at the root) and make it the leaf.

        A parent that has children already gets one more: a new branch.
        """
        text, now = clean(text), time.time()
        with self._writing(durable=True) as database:
            added = database.execute(
                "INSERT INTO message(conversation, parent, role, text, state, created, model)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (conversation_id, parent, role.value, text, state.value, now, clean(model)),
            )
            message_id = added.lastrowid or 0
            if state is not MessageState.STREAMING:
                index(database, message_id, text)
            set_leaf(database, conversation_id, message_id)
            touch(database, conversation_id)
            return find(database, message_id)

    def append_text(self, message_id: int, text: str) -> None:
        """Add a piece to a streaming message; a finished one streams again.

        Cheap at any length. When it raises, nothing of the piece was stored: send it again.
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

    def finish(
        self,
        message_id: int,
        state: MessageState,
        *,
        error: str = "",
        prompt_tokens: int = 0,
        generated_tokens: int = 0,
        seconds: float = 0.0,
    ) -> Message:
        """End a streaming message: its pieces become one text, searchable and safe on the disk."""
        assert state is not MessageState.STREAMING
        with self._writing(durable=True) as database:
            fold_chunks(database, message_id, state)
            database.execute(
                "UPDATE message SET error = ?, prompt_tokens = ?, generated_tokens = ?, seconds = ?"
                " WHERE id = ?",
                (clean(error), prompt_tokens, generated_tokens, seconds, message_id),
            )
            message = find(database, message_id)
            touch(database, message.conversation)
            return message

    def select_sibling(self, message_id: int, step: int) -> list[Message]:
        """Show the alternative `step` places after (before: negative) this message.

        Stops at the first and the last one. Below it, the branch last used there is shown.
        """
        with self._writing(durable=True) as database:
            message = find(database, message_id)
            siblings = sibling_ids(database, message)
            place = min(max(siblings.index(message_id) + step, 0), len(siblings) - 1)
            leaf = database.execute(LAST_USED_BELOW, (siblings[place], message.conversation))
            set_leaf(database, message.conversation, leaf.fetchone()[0])
        return self.branch(message.conversation)

    # --- drafts -----------------------------------------------------------------------------

    def set_draft(self, conversation_id: int | None, text: str) -> None:
        """Keep text that was typed but not sent; None is the conversation not begun yet."""
        with self._writing(durable=False) as database:
            if text:
                database.execute(
                    "INSERT OR REPLACE INTO draft(conversation, saved, text) VALUES (?, ?, ?)",
                    (conversation_id or 0, time.time(), clean(text)),
                )
            else:
                database.execute(
                    "DELETE FROM draft WHERE conversation = ?", (conversation_id or 0,)
                )

    def draft(self, conversation_id: int | None) -> str:
        """Text that was typed but not sent, or nothing."""
        with self._reading() as database:
            row = database.execute(
                "SELECT text FROM draft WHERE conversation = ?", (conversation_id or 0,)
            ).fetchone()
            return row[0] if row else ""

    # --- adapters ---------------------------------------------------------------------------

    def adapters(self) -> StoredAdapters:
        """Adapter files that were added, the stacks of all conversations, and the mixes."""
        with self._reading() as database:
            return store_adapters.read_adapters(database)

    def set_adapter_stack(self, conversation_id: int | None, uses: Sequence[StoredUse]) -> None:
        """Keep the stack of a conversation; None is the conversation not begun yet."""
        with self._writing(durable=False) as database:
            store_adapters.set_stack(database, conversation_id or 0, uses)

    def set_adapter_mix(self, name: str, uses: Sequence[StoredUse]) -> None:
        """Keep a mix under a name; without adapters, delete it."""
        with self._writing(durable=True) as database:
            store_adapters.set_mix(database, name, uses)

    def set_known_adapter(self, path: Path, name: str) -> None:
        """Remember an adapter file, and what it is called."""
        with self._writing(durable=False) as database:
            store_adapters.set_known(database, path, name)

    def mark_message(self, message_id: int, marks: Sequence[AdapterMark]) -> None:
        """Say with which adapters an answer is written."""
        with self._writing(durable=False) as database:
            store_adapters.set_marks(database, message_id, marks)


def _salvaged(path: Path) -> Path:
    """Where a repair keeps what it read until the damaged store has moved."""
    return path.with_name(path.name + ".salvaged")
