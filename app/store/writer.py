"""Store writer: queues reads and writes of the store on a worker thread, and retries writes.

The window shows the state in memory and never waits for the disk. The app makes the ids of new
conversations and messages, so that a row has the same id in the state and in the store.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from app.domain.chat import KEEP_DELETED_SECONDS, Conversation
from app.domain.message import Message
from app.store.schema import NewerStore, RowNotFound
from app.store.store import DamagedStore, ReadOnlyStore, Store, StoreError
from app.system.worker import BackgroundWorker

if TYPE_CHECKING:
    from app.store.salvage import Salvaged

T = TypeVar("T")
_log = logging.getLogger(__name__)
_RETRY_MILLISECONDS = 2000
CLOSE_SECONDS = 20.0  # how long `close` waits for the disk
SETTLE_SECONDS = 1.0  # how long `settle` does; it takes some milliseconds


@dataclass(frozen=True, slots=True)
class RejectedChange:
    """A change that the store rejects, which a retry cannot fix."""

    error: Exception
    text: str  # of the user or an answer, which the store lacks
    kept_in: Path | None  # a file with the text; None when it could not be written either


@dataclass(frozen=True, slots=True)
class _Change:
    """A queued change."""

    operation: Callable[[Store], object]
    text: str


class StoreQueue(QObject):
    """Queue of store operations. Methods and callbacks run on the GUI thread, operations do not."""

    fault_changed = Signal(object)  # StoreError; None when writing works again
    change_rejected = Signal(object)  # RejectedChange

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path = path
        self._worker = BackgroundWorker("store", self)  # used by the store only
        self._writes: deque[_Change] = deque()
        self._store: Store | None = None  # this and the next three: store thread only
        self._copy: Store | None = None  # temporary copy of a read-only store
        self._fault: StoreError | None = None  # why saving fails
        self._repaired = False  # writing changes that were queued before a repair
        self._retry = QTimer(self, singleShot=True, interval=_RETRY_MILLISECONDS)
        self._retry.timeout.connect(self._drain_soon)

    def write(self, operation: Callable[[Store], object], text: str = "") -> None:
        """Queue a change; later ones wait while it is retried.

        A change that cannot succeed is rejected, and its `text` is appended to a file.
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
        """Run a query after the changes queued so far; `then` gets its result unless it fails.

        With `only_if_saved`, the query is skipped while changes cannot be saved.
        """
        self._submit(lambda: self._read(operation, then, only_if_saved))

    def flush(self, then: Callable[[int], None]) -> None:
        """Try to save the queued changes; `then` gets how many could not be saved.

        In a store of a newer version, which cannot be changed, only those with a text count.
        """

        def run() -> None:
            self._drain()
            counts_all = not isinstance(self._fault, NewerStore)
            left = sum(counts_all or bool(change.text) for change in self._writes)
            self._worker.post(lambda: then(left))

        self._submit(run)

    def settle(self, timeout_seconds: float = SETTLE_SECONDS) -> bool:
        """Wait until the changes queued so far are saved; False when that exceeds the timeout.

        For what the user has just finished, so that a crash from now on does not lose it. Returns
        at once while changes cannot be saved.
        """
        if self._fault is not None:
            return False
        written = threading.Event()
        self._submit(written.set)
        return written.wait(timeout_seconds) and not self._writes

    def repair(self, then: Callable[[Path, Salvaged | None], None]) -> None:
        """Replace a damaged store by a new one with its readable rows.

        `then` gets the path of the old file, and the counts of salvaged rows, or None if nothing
        was readable.
        """
        self._submit(lambda: self._repair(then))

    def rewrite(
        self,
        conversation: Conversation,
        branch: Sequence[Message],
        others: Sequence[Message] = (),
    ) -> None:
        """Write a shown branch again, after a repair lost rows of it.

        `others` are the other answers of its open comparisons.
        """
        now = (*branch[:-1], *others, *branch[-1:])  # a copy: the branch may grow before this runs

        def write(store: Store) -> None:
            store.rewrite_conversation(conversation)
            for message in now:
                store.rewrite_message(message)

        self.write(write, "\n\n".join(message.text for message in now))

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """Save the queued changes and end the thread; False when that exceeds the timeout."""
        self.end()
        return self.join(timeout_seconds)

    def end(self) -> None:
        """Start closing: save the queued changes if possible, then end; returns at once."""
        self._retry.stop()
        self._worker.end(self._close)

    def join(self, timeout_seconds: float) -> bool:
        """After `end`, wait for the thread, on any thread; False when that exceeds the timeout."""
        ended = self._worker.join(timeout_seconds)
        if not ended:
            _log.error("the store did not close in time: the last changes could not be saved")
        return ended

    # --- the store thread -----------------------------------------------------------------------

    def _open(self) -> Store:
        if self._store is None:
            self._store = Store.open(self.path)
            if self._copy is not None:
                self._copy.close()
                self._copy = None
            self._store.purge_deleted(KEEP_DELETED_SECONDS)
            self._submit(self._tidy)
        return self._store

    def _open_for_reading(self) -> Store:
        """The store; a temporary copy when it cannot be written."""
        if self._store is not None or not isinstance(self._fault, ReadOnlyStore):
            return self._open()
        if self._copy is None:
            self._copy = Store.open_copy(self.path)
        return self._copy

    def _tidy(self) -> None:
        """After the first queries: remove files that nothing names."""
        if self._store is not None:
            try:
                self._store.remove_unnamed_blobs()
            except StoreError as error:
                _log.warning("unused files could not be removed: %s", error)

    def _drain(self) -> bool:
        """Write the queued changes; False when one failed and is retried later."""
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
        """Write one change; on an error it is queued again or rejected."""
        change = self._writes.popleft()
        try:
            change.operation(store)
        except RowNotFound as error:
            if change.text and not self._repaired:
                self._reject(change, error)
            else:
                _log.warning("a change was dropped: its row no longer exists")
        except StoreError as error:
            if error.temporary or isinstance(error, DamagedStore):  # retried later, or after repair
                self._writes.appendleft(change)
                raise
            self._reject(change, error)
        except Exception as error:  # noqa: BLE001  (a bug must not block the next changes)
            self._reject(change, error)

    def _reject(self, change: _Change, error: Exception) -> None:
        """Drop a change, append its text to a file, and emit `change_rejected`."""
        _log.error("a change could not be saved and was rejected", exc_info=error)
        kept = self.path.with_name(f"{self.path.stem}.unsaved.txt") if change.text else None
        if kept is not None:
            try:
                _append(kept, f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n{change.text}\n\n")
            except OSError as fault:
                _log.error("the text of a rejected change could not be saved: %s", fault.strerror)
                kept = None
        rejected = RejectedChange(error, change.text, kept)
        self._worker.post(lambda: self.change_rejected.emit(rejected))

    def _read(
        self, operation: Callable[[Store], T], then: Callable[[T], None], only_if_saved: bool
    ) -> None:
        if not self._drain() and (only_if_saved or not self._can_read()):
            return
        try:
            result = operation(self._open_for_reading())
        except StoreError as error:
            self._report(error)
            return
        self._worker.post(lambda: then(result))

    def _can_read(self) -> bool:
        """Whether queries are possible although changes cannot be saved."""
        return self._store is not None or (
            isinstance(self._fault, ReadOnlyStore) and self.path.exists()
        )

    def _repair(self, then: Callable[[Path, Salvaged | None], None]) -> None:
        try:
            if self._store is not None:
                self._store.close()
                self._store = None
            aside, found = Store.repair(self.path)
            self._open()
        except StoreError as error:
            self._report(error)
            return
        self._worker.post(lambda: then(aside, found))
        self._repaired = True  # queued changes may be for rows that are lost and rewritten later
        try:
            self._drain()
        finally:
            self._repaired = False

    def _report(self, error: StoreError) -> None:
        before, self._fault = self._fault, error
        is_new = before is None or (type(before), str(before)) != (type(error), str(error))
        if is_new:
            _log.warning("the store failed: %s", type(error).__name__)

        def emit() -> None:
            if is_new:  # a notice that the user has closed must not return with every write
                self.fault_changed.emit(error)
            if error.temporary:
                self._retry.start()

        self._worker.post(emit)

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
        except Exception as error:  # noqa: BLE001  (the thread must not end: it owns the database)
            self._raise_in_gui(error)

    def _raise_in_gui(self, error: Exception) -> None:
        """Raise an unexpected exception on the GUI thread, whose hook reports it."""

        def fail() -> None:
            raise error

        self._worker.post(fail)

    # --- GUI thread -----------------------------------------------------------------------------

    def _drain_soon(self) -> None:
        self._submit(self._drain)

    def _submit(self, call: Callable[[], object]) -> None:
        self._worker.run(lambda: self._run(call))


def _append(path: Path, text: str) -> None:
    """Append text to a file only its owner can read, and sync it to the disk."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(number, "a", encoding="utf-8", errors="replace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
