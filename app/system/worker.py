"""Worker thread for blocking calls: files on slow drives, hub requests, the store.

Each kind of call has a separate worker, so that none waits for a drive that is spinning up. The
thread starts with the first call and is a daemon, so that a call that never returns does not
prevent quitting.
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
JOIN_TIMEOUT_SECONDS = 3.0  # how long `close` waits for queued calls


class BackgroundWorker(QObject):
    """Runs calls one after another; delivers their results on the GUI thread."""

    _posted = Signal(object)  # a callable for the GUI thread

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # guards `_closed`: nothing is posted after close
        self._closed = False
        self._posted.connect(self._run_posted, Qt.ConnectionType.QueuedConnection)

    def run(self, call: Callable[[], T], then: Callable[[T], None] | None = None) -> None:
        """Run `call` on the thread, then `then` on the GUI thread; does nothing once closed."""
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
        """Run `call` on the GUI thread, unless closed; may be called from any thread."""
        with self._lock:
            if not self._closed:
                self._posted.emit(call)

    def close(
        self,
        last: Callable[[], object] | None = None,
        timeout_seconds: float = JOIN_TIMEOUT_SECONDS,
    ) -> bool:
        """Run `last` after the queued calls, and wait; False when that exceeds the timeout."""
        self.end(last)
        ended = self.join(timeout_seconds)
        if not ended and timeout_seconds:
            _log.warning("%s: not done within %g seconds of closing", self._name, timeout_seconds)
        return ended

    def end(self, last: Callable[[], object] | None = None) -> None:
        """Run `last` after the queued calls, then end the thread; returns at once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if last is not None:
            self._put(last)
        if self._thread is not None:
            self._calls.put(None)

    def join(self, timeout_seconds: float) -> bool:
        """Wait until the thread has ended; False when that exceeds the timeout."""
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
            if not ended:  # a call raised, which `threading.excepthook` reports
                self._start()

    def _run_posted(self, call: Callable[[], None]) -> None:
        if not self._closed:
            call()
