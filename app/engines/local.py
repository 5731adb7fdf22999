"""Local client: the engine in this process, whose thread hands its events to the GUI thread.

The engine's thread appends events to a deque and wakes a precise 16 ms timer, unless it is awake
already. One queued signal per token would freeze the window whenever Python is busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.engines.capabilities import Capabilities
from app.engines.client import ClientMaker, Deliver, Handle
from engine import ConstraintKind, Engine, Event, Request

_DRAIN_MILLISECONDS = 16
_CAPABILITIES = Capabilities(
    adapters=True, snapshots=True, metrics=True, counts=True, formats=frozenset(ConstraintKind)
)


class ThreadedEngine(Protocol):
    """Interface of `engine.Engine`; it is made with a callback for events of no request."""

    def start(self) -> None:
        """Start the thread; returns at once."""
        ...

    def submit(self, request: Request, deliver: Callable[[Event], None]) -> Handle:
        """Queue a request; `deliver` is called on any thread. Returns at once."""
        ...

    def stop(self) -> None:
        """Stop for good, and wait until it has stopped."""
        ...


EngineMaker = Callable[[Callable[[Event], None]], ThreadedEngine]


class LocalClient(QObject):
    """`EngineClient` of an engine in this process."""

    _woken = Signal()  # from the engine's threads: there are events

    def __init__(
        self, engine: EngineMaker, deliver: Deliver, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._deliver = deliver
        self._events: deque[Event] = deque()
        self._awake = False  # the timer is running, or will be started
        self._timer = QTimer(
            self,
            singleShot=True,
            interval=_DRAIN_MILLISECONDS,
            timerType=Qt.TimerType.PreciseTimer,
        )
        self._timer.timeout.connect(self.drain)
        self._woken.connect(self._timer.start)
        self._engine = engine(self._add)

    @property
    def capabilities(self) -> Capabilities:
        """Adapters, snapshots and metrics."""
        return _CAPABILITIES

    def start(self) -> None:
        """Start the engine's thread, which imports torch; call it after the first paint."""
        self._engine.start()

    def submit(self, request: Request) -> Handle:
        """Queue a request."""
        return self._engine.submit(request, self._add)

    def drain(self) -> None:
        """Deliver the queued events."""
        self._awake = False  # first: an event that comes from now on wakes the timer again
        batch: list[Event] = []
        while self._events:
            batch.append(self._events.popleft())
        if batch:
            self._deliver(batch)

    def stop(self) -> None:
        """Stop the engine and wait for it; may block."""
        self._engine.stop()

    def _add(self, event: Event) -> None:
        """Queue an event, on any thread."""
        self._events.append(event)
        if not self._awake:
            self._awake = True
            self._woken.emit()


def local(engine: EngineMaker = Engine) -> ClientMaker:
    """Maker of the client of an engine in this process."""
    return partial(LocalClient, engine)
