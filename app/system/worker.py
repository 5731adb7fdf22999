"""A worker thread for calls that may block: files of a slow drive, questions to the hub, the store.

Each kind of call has a worker of its own, so that none waits for a drive that is just waking up.
The thread begins with the first call and is a daemon: a call that never returns keeps nobody from
quitting.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal

T = TypeVar("T")
_log = logging.getLogger(__name__)
JOIN_TIMEOUT_SECONDS = 3.0  # that closing waits for what is under way


class BackgroundWorker(QObject):
    """Runs one call after the other; results come back on the window's thread."""

    _posted = Signal(object)  # a callable for the window's thread

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # so that nothing is posted to what is closed
        self._closed = False
        self._posted.connect(self._run_posted, Qt.ConnectionType.QueuedConnection)

    def run(self, call: Callable[[], T], then: Callable[[T], None] | None = None) -> None:
        """Do `call` on the thread; `then` gets its result here. What comes after close is dropped."""
        if self._closed:
            return

        if then is None:
            self._put(call)
            return

        def work() -> None:
            result = call()
            self.post(lambda: then(result))

        self._put(work)

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` run on the window's thread, unless this is closed; from any thread."""
        with self._lock:
            if not self._closed:
                self._posted.emit(call)

    def close(
        self,
        last: Callable[[], object] | None = None,
        timeout_seconds: float = JOIN_TIMEOUT_SECONDS,
    ) -> bool:
        """Do `last` after what is queued and wait for that; False when it takes longer."""
        self.end(last)
        ended = self.join(timeout_seconds)
        if not ended and timeout_seconds:
            _log.warning("%s: not done within %g seconds of closing", self._name, timeout_seconds)
        return ended

    def end(self, last: Callable[[], object] | None = None) -> None:
        """Do `last` after what is queued, then end the thread; returns at once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if last is not None:
            self._put(last)
        if self._thread is not None:
            self._calls.put(None)

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread's end; False when it takes longer than this."""
        if self._thread is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _put(self, call: Callable[[], object]) -> None:
        self._calls.put(call)
        if self._thread is None:
            self._start()

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

    def _run_posted(self, call: Callable[[], None]) -> None:
        if not self._closed:
            call()
