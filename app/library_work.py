"""One thread for work that may take its time: files of a slow drive, questions to the hub.

Not the archive's thread, on which conversations are saved: that must never wait for a drive that
is just waking up. The thread begins with the first work, and quitting does not wait for the net.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal

T = TypeVar("T")
_PATIENCE = 3.0  # seconds that closing waits for what is under way


class Work(QObject):
    """Runs one call after the other; results come back on the window's thread."""

    _posted = Signal(object)  # a callable for the window's thread

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # so that nothing is posted to what is closed
        self._closed = False
        self._posted.connect(self._run_posted, Qt.ConnectionType.QueuedConnection)

    def run(self, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `call` on the thread; `then` gets its result here. What comes after close is dropped."""
        if self._closed:
            return

        def work() -> None:
            result = call()
            self._post(lambda: then(result))

        self._calls.put(work)
        if self._thread is None:
            self._start()

    def close(self, last: Callable[[], None] | None = None, patience: float = _PATIENCE) -> None:
        """Do `last` after what is queued, and wait for that as long as `patience` seconds."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._thread is None:
            if last is not None:
                last()
            return
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)
        self._thread.join(patience)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        ended = False
        try:
            while (call := self._calls.get()) is not None:
                call()
            ended = True
        finally:
            if not ended:  # a mistake of ours, which the hook of threads reports
                self._start()

    def _post(self, call: Callable[[], None]) -> None:
        with self._lock:
            if not self._closed:
                self._posted.emit(call)

    def _run_posted(self, call: Callable[[], None]) -> None:
        if not self._closed:
            call()
