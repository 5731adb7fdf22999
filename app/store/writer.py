"""Runs the store on its own thread: in order, never awaited, and repeated while that can help.

The window shows what is in memory; this brings it to the disk behind it. New conversations and
messages get a number below zero at once and their number in the store later, and only this file
knows both, so neither a slow disk nor a full one holds up typing.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from app.store.schema import Gone
from app.store.store import (
    Conversation,
    DamagedStore,
    Message,
    ReadOnlyStore,
    Salvaged,
    Store,
    StoreError,
)
from app.system.worker import BackgroundWorker

T = TypeVar("T")
_log = logging.getLogger(__name__)
_RETRY_MILLISECONDS = 2000
_KEEP_DELETED_SECONDS = 30 * 24 * 3600
CLOSE_SECONDS = 20.0  # that closing waits for the disk


class Numbers:
    """Which number in the store a number of this run stands for, for one table; store thread only."""

    def __init__(self) -> None:
        self._stored: dict[int, int] = {}
        self._local: dict[int, int] = {}

    def pair(self, local: int, stored: int) -> None:
        """A row that was made here now exists in the store."""
        self._stored[local] = stored
        self._local[stored] = local

    def stored(self, local: int) -> int:
        """The number in the store; raises Gone when the row never reached it."""
        if local >= 0:
            return local
        if local not in self._stored:
            raise Gone
        return self._stored[local]

    def last(self) -> int:
        """The largest number in the store that is known to stand for a row made here."""
        return max(self._local, default=0)

    def known(self, local: int) -> int:
        """The number in the store, or 0 when the row never reached it."""
        return local if local >= 0 else self._stored.get(local, 0)

    def local(self, stored: int) -> int:
        """The number this run knows the row by."""
        return self._local.get(stored, stored)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A change that can never be saved."""

    error: Exception
    text: str  # that the user wrote or read, and that is not in the store now
    kept_in: Path | None  # a file that has the text; None when it could not be written either


@dataclass(frozen=True, slots=True)
class _Change:
    """A change that waits to be saved."""

    operation: Callable[[Store], object]
    text: str


class Archive(QObject):
    """The store behind a queue. Everything but the operations themselves runs on the window's thread."""

    fault_changed = Signal(object)  # StoreError, or None when writing works again
    change_left_out = Signal(object)  # LeftOut

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path = path
        self.conversations, self.messages = Numbers(), Numbers()
        self._worker = BackgroundWorker("store", self)  # nothing but the store runs on it
        self._writes: deque[_Change] = deque()
        self._store: Store | None = None  # the store thread's
        self._copy: Store | None = None  # the store thread's: of one that cannot be written
        self._fault: StoreError | None = None  # the store thread's: why saving fails
        self._repaired = False  # the store thread's: these changes are from before a repair
        self._retry = QTimer(self, singleShot=True, interval=_RETRY_MILLISECONDS)
        self._retry.timeout.connect(self._drain_soon)

    def write(self, operation: Callable[[Store], object], text: str = "") -> None:
        """Queue a change; later ones wait while it is tried again.

        One that can never succeed is left out, and its `text` is kept in a file.
        """
        self._writes.append(_Change(operation, text))
        self._drain_soon()

    def read(
        self,
        operation: Callable[[Store], T],
        then: Callable[[T], None],
        *,
        only_if_saved: bool = False,
    ) -> None:
        """Look something up after the changes queued so far; `then` gets it, unless it fails.

        With `only_if_saved`, nothing is looked up while changes cannot be saved.
        """
        self._submit(lambda: self._read(operation, then, only_if_saved))

    def flush(self, then: Callable[[int], None]) -> None:
        """Try to save what is queued now; `then` gets how many changes could not be saved."""

        def run() -> None:
            self._drain()
            left = len(self._writes)
            self._worker.post(lambda: then(left))

        self._submit(run)

    def repair(self, known: tuple[int, int], then: Callable[[Path, Salvaged | None], None]) -> None:
        """Move a damaged store aside and copy what can be read of it into a new one.

        The new one gives no number of a conversation and of a message up to `known` to another.
        `then` gets where the old file is now and what was found in it, if it could be read.
        """
        self._submit(lambda: self._repair(known, then))

    def put_back(self, conversation: Conversation, branch: Sequence[Message]) -> None:
        """Write again what the window shows of a conversation, where the store has lost it."""
        conversations, messages = self.conversations, self.messages
        now = tuple(branch)  # which grows on while this waits for its turn

        def write(store: Store) -> None:
            place = conversations.known(conversation.id)
            number = store.put_back_conversation(replace(conversation, id=place))
            conversations.pair(conversation.id, number)
            for message in now:
                added = replace(
                    message,
                    id=messages.known(message.id),
                    parent=None if message.parent is None else messages.stored(message.parent),
                    conversation=number,
                )
                messages.pair(message.id, store.put_back_message(added))

        self.write(write, "\n\n".join(message.text for message in now))

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """Bring what is queued to the disk and end the thread; False when it takes longer."""
        self.end()
        return self.join(timeout_seconds)

    def end(self) -> None:
        """Begin to close: save what is queued, if that works, then end; returns at once."""
        self._retry.stop()
        self._worker.end(self._close)

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end after `end`, on any thread; False when it takes longer than this."""
        ended = self._worker.join(timeout_seconds)
        if not ended:
            _log.error("the store does not answer: the last changes could not be saved")
        return ended

    # --- rows with the numbers of this run (store thread) ---------------------------------------

    def here(self, messages: Sequence[Message]) -> list[Message]:
        """Messages of the store, numbered as this run knows them."""
        return [
            replace(
                message,
                id=self.messages.local(message.id),
                parent=None if message.parent is None else self.messages.local(message.parent),
                conversation=self.conversations.local(message.conversation),
            )
            for message in messages
        ]

    def listed(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """Conversations of the store, numbered as this run knows them."""
        return [
            replace(conversation, id=self.conversations.local(conversation.id))
            for conversation in conversations
        ]

    # --- the store thread -----------------------------------------------------------------------

    def _open(self) -> Store:
        if self._store is None:
            self._store = Store.open(self.path)
            if self._copy is not None:
                self._copy.close()
                self._copy = None
            self._store.purge_deleted(_KEEP_DELETED_SECONDS)
        return self._store

    def _open_for_reading(self) -> Store:
        """The store; where it cannot be written, a copy of what is there."""
        if self._store is not None or not isinstance(self._fault, ReadOnlyStore):
            return self._open()
        if self._copy is None:
            self._copy = Store.open_copy(self.path)
        return self._copy

    def _drain(self) -> bool:
        """Do what is queued; False when it failed and is to be tried again."""
        try:
            store = self._open()
            while self._writes:
                self._write_next(store)
        except StoreError as error:
            self._report(error)
            return False
        if self._fault is not None:
            self._fault = None
            self._worker.post(lambda: self.fault_changed.emit(None))
        return True

    def _write_next(self, store: Store) -> None:
        """Do one change; it is queued again only when trying again can help."""
        change = self._writes.popleft()
        try:
            change.operation(store)
        except Gone as error:
            if change.text and not self._repaired:
                self._leave_out(change, error)
            else:
                _log.warning("a change was dropped: what it was for is gone")
        except StoreError as error:
            if error.temporary or isinstance(error, DamagedStore):  # which a repair may mend
                self._writes.appendleft(change)
                raise
            self._leave_out(change, error)
        except Exception as error:  # noqa: BLE001  (a mistake of ours must not hold up the next)
            self._leave_out(change, error)

    def _leave_out(self, change: _Change, error: Exception) -> None:
        """Go on without a change, and keep what was written where it can be found."""
        _log.error("a change could not be saved and was left out", exc_info=error)
        kept = self.path.with_name(f"{self.path.stem}.unsaved.txt") if change.text else None
        if kept is not None:
            try:
                _append(kept, f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n{change.text}\n\n")
            except OSError as fault:
                _log.error("its text could not be kept: %s", fault.strerror)
                kept = None
        left_out = LeftOut(error, change.text, kept)
        self._worker.post(lambda: self.change_left_out.emit(left_out))

    def _read(
        self, operation: Callable[[Store], T], then: Callable[[T], None], only_if_saved: bool
    ) -> None:
        if not self._drain() and (only_if_saved or not self._may_read()):
            return
        try:
            result = operation(self._open_for_reading())
        except StoreError as error:
            self._report(error)
            return
        self._worker.post(lambda: then(result))

    def _may_read(self) -> bool:
        """Whether something can be looked up although nothing can be saved."""
        return self._store is not None or (
            isinstance(self._fault, ReadOnlyStore) and self.path.exists()
        )

    def _repair(
        self, known: tuple[int, int], then: Callable[[Path, Salvaged | None], None]
    ) -> None:
        try:
            if self._store is not None:
                self._store.close()
                self._store = None
            aside, found = Store.repair(self.path)
            self._open().reserve(
                max(known[0], self.conversations.last()), max(known[1], self.messages.last())
            )
        except StoreError as error:
            self._report(error)
            return
        self._worker.post(lambda: then(aside, found))
        self._repaired = True  # what is queued may be for rows that were lost, and are put back
        try:
            self._drain()
        finally:
            self._repaired = False

    def _report(self, error: StoreError) -> None:
        if self._fault is None:
            _log.warning("the store failed: %s", type(error).__name__)
        self._fault = error

        def tell() -> None:
            self.fault_changed.emit(error)
            if error.temporary:
                self._retry.start()

        self._worker.post(tell)

    def _close(self) -> None:
        try:
            self._drain()
        finally:
            self._close_store()

    def _close_store(self) -> None:
        if self._writes:
            _log.error("%d changes could not be saved", len(self._writes))
        for store in (self._store, self._copy):
            if store is not None:
                try:
                    store.close()
                except StoreError:
                    _log.warning("the store did not close cleanly")
        self._store = self._copy = None

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  (the thread must live on: it owns the database)
            self._surface(error)

    def _surface(self, error: Exception) -> None:
        """Raise our own mistakes where the window can report them."""

        def fail() -> None:
            raise error

        self._worker.post(fail)

    # --- the window's thread --------------------------------------------------------------------

    def _drain_soon(self) -> None:
        self._submit(self._drain)

    def _submit(self, call: Callable[[], object]) -> None:
        self._worker.run(lambda: self._run(call))


def _append(path: Path, text: str) -> None:
    """Add text to a file that only its owner can read, and bring it to the disk."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(number, "a", encoding="utf-8", errors="replace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
