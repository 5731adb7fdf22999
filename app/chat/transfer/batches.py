"""Stores what an import reads, some chats in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.chat.transfer.faults import Cancelled
from app.chat.transfer.pieces import MOST_CHARACTERS, MOST_MESSAGES, local_record, size_of
from app.domain.chat_tree import FolderRecord
from app.store.chat_trees import ImportPiece
from app.store.schema import DamagedStore, StoreError
from app.store.store import Store
from app.store.writer import StoreQueue
from app.system.worker import BackgroundWorker

_WAITING_BATCHES = 4  # transactions that may wait for the store


@dataclass(slots=True)
class Made:
    """The ids of what an import has made so far."""

    chats: list[int] = field(default_factory=list[int])
    folders: list[int] = field(default_factory=list[int])


class Batches:
    """Stores pieces of chats, some in one transaction; waits when too many wait for the store."""

    def __init__(
        self,
        worker: BackgroundWorker,
        store_queue: StoreQueue,
        cancelled: threading.Event,
        made: Made,
    ) -> None:
        self.records: dict[tuple[str, ...], FolderRecord] = {}  # of the folders in the file
        self.used: set[tuple[str, ...]] = set()  # paths of folders that chats of the file are in
        self._worker, self._store_queue = worker, store_queue
        self._cancelled, self._made = cancelled, made
        self._slots = threading.Semaphore(_WAITING_BATCHES)
        self._failed: list[Exception] = []
        self._pieces: list[ImportPiece] = []
        self._messages = self._characters = 0

    def add_folders(self, found: Sequence[FolderRecord]) -> None:
        """Make the folders of a file as these say; of two with one path the first one counts."""
        for record in map(local_record, found):
            self.records.setdefault(record.path, record)

    def add(self, piece: ImportPiece) -> None:
        """Add a piece; raises Cancelled, and StoreError if the store rejected an earlier one."""
        self._pieces.append(piece)
        self._messages += len(piece.messages)
        self._characters += sum(map(size_of, piece.messages))
        if self._messages >= MOST_MESSAGES or self._characters >= MOST_CHARACTERS:
            self._write()

    def finish(self) -> None:
        """Store the rest and the folders that no chat is in, and wait until all is stored."""
        if self._pieces:
            self._write()
        if self._made.chats:
            self._submit(self._make_empty_folders)
        for _ in range(_WAITING_BATCHES):
            self._wait()

    def _wait(self) -> None:
        while not self._slots.acquire(timeout=0.1):
            if self._cancelled.is_set():
                raise Cancelled
        if self._failed:
            raise self._failed[0]

    def _write(self) -> None:
        pieces, self._pieces = tuple(self._pieces), []
        self._messages = self._characters = 0
        self._submit(
            lambda store: self._made.folders.extend(store.import_pieces(pieces, self.records))
        )

    def _make_empty_folders(self, store: Store) -> None:
        for path in self.records:
            if path not in self.used:
                self._made.folders += store.import_folder(path, self.records)

    def _submit(self, change: Callable[[Store], None]) -> None:
        self._wait()

        def write(store: Store) -> None:
            try:
                if not self._cancelled.is_set():
                    change(store)
            except StoreError as error:
                if error.temporary or isinstance(error, DamagedStore):
                    raise  # tried again
                self._failed.append(error)
            except Exception as error:  # noqa: BLE001  (raised by `_wait`)
                self._failed.append(error)
            self._slots.release()

        self._worker.post(lambda: self._store_queue.write(write))
