"""Reading of collections' files, one after another; a drive that hangs keeps its thread only.

A call into a file system that does not respond never returns, and cannot be ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject, QTimer

from app.chat.documents.collection_reader import CollectionReader, ReadFile
from app.chat.documents.file_texts import TextExtractor
from app.domain.collection import CollectionFile
from app.system.worker import BackgroundWorker

HANG_SECONDS = 30  # without a byte from a file, or a sign of its extraction
_CHECK_MILLISECONDS = 1_000


class CollectionReading(QObject):
    """Reads a file on a thread; another thread reads the next one where a drive hangs."""

    def __init__(
        self, extractor: Callable[[], TextExtractor], hung: Callable[[], object], parent: QObject
    ) -> None:
        """`hung` is called when a file has been given up so far; its result may still come."""
        super().__init__(parent)
        self._make, self._hung = extractor, hung
        self.path = ""  # of the file that is read
        self.stuck = set[str]()  # paths of files that do not respond
        self._alive = 0.0  # when the file that is read last responded
        self._closed = False
        self._worker, self._reader = self._hand()
        self._check = QTimer(self, interval=_CHECK_MILLISECONDS)
        self._check.timeout.connect(self._leave_hanging)

    def read(
        self,
        file: CollectionFile,
        known: Mapping[str, CollectionFile],
        then: Callable[[ReadFile], None],
    ) -> None:
        """Read a file, while no other one is read; see `CollectionReader.read`."""
        self.path, self._alive = file.path, time.monotonic()
        worker, reader = self._worker, self._reader

        def is_closed() -> bool:
            if worker is self._worker:
                self._alive = time.monotonic()
            return self._closed

        def done(read: ReadFile) -> None:
            if worker is self._worker:
                self.path = ""
                self._check.stop()
            else:
                self.stuck.discard(file.path)
                worker.end(reader.close)
            then(read)

        worker.run(lambda: reader.read(file, known, is_closed), done)
        self._check.start()

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        self._check.stop()
        self._worker.close(self._reader.close)

    def _hand(self) -> tuple[BackgroundWorker, CollectionReader]:
        return BackgroundWorker("reading", self), CollectionReader(self._make)

    def _leave_hanging(self) -> None:
        if self.path and time.monotonic() - self._alive > HANG_SECONDS:
            self.stuck.add(self.path)
            self.path = ""
            self._check.stop()
            self._worker, self._reader = self._hand()
            self._hung()
