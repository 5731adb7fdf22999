"""Handover: a thread-safe queue whose values are delivered on the GUI thread, every 16 ms.

One queued signal for each token would freeze the window whenever Python is busy. So the first value
of a batch starts a single-shot timer, which delivers all values that were queued until it fires.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from PySide6.QtCore import QObject, Qt, QTimer, Signal

T = TypeVar("T")

_DRAIN_MILLISECONDS = 16


class Handover(QObject, Generic[T]):
    """A queue between threads; its owner on the GUI thread is its parent."""

    _woken = Signal()  # from any thread

    def __init__(self, deliver: Callable[[list[T]], None], parent: QObject) -> None:
        """`deliver` is called on the GUI thread with what has come, in order."""
        super().__init__(parent)
        self._deliver = deliver
        self._queue: deque[T] = deque()
        self._awake = False  # the timer is running, or will be started
        self._timer = QTimer(
            self,
            singleShot=True,
            interval=_DRAIN_MILLISECONDS,
            timerType=Qt.TimerType.PreciseTimer,
        )
        self._timer.timeout.connect(self.drain)
        self._woken.connect(self._timer.start)

    def put(self, value: T) -> None:
        """Queue something, on any thread."""
        self._queue.append(value)
        if not self._awake:
            self._awake = True
            self._woken.emit()

    def drain(self) -> None:
        """Deliver what has come so far."""
        self._awake = False  # before the queue is read: a later value starts the timer again
        batch: list[T] = []
        while self._queue:
            batch.append(self._queue.popleft())
        self._deliver(batch)
