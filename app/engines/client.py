"""Engine client: assigns request ids, and delivers engine events on the GUI thread.

The engine's thread appends events to a deque; a precise 16 ms timer drains it while requests are
outstanding. One queued signal per token would freeze the window whenever Python is busy.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Protocol, assert_never

from PySide6.QtCore import QObject, Qt, QTimer

from engine import (
    AdaptersSet,
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    LoadModel,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    TokensCounted,
    UnloadModel,
)

_DRAIN_MILLISECONDS = 16
_log = logging.getLogger(__name__)


class EngineClient(Protocol):
    """Interface of an engine: the one in this process, a remote one or a fake.

    It is constructed with a callback for its events, which it calls on any thread.
    """

    def start(self) -> None:
        """Start processing commands; returns at once."""
        ...

    def send(self, command: Command) -> None:
        """Queue a command; returns at once."""
        ...

    def stop(self) -> None:
        """Stop for good, and wait until it has stopped."""
        ...


EngineMaker = Callable[[Callable[[Event], None]], EngineClient]


class EngineRequests(QObject):
    """Sends commands; delivers events in batches, in order, on the GUI thread."""

    def __init__(
        self,
        engine: EngineMaker,
        receive: Callable[[Sequence[Event]], None],
        unhandled: Callable[[int, Exception], None],
        parent: QObject | None = None,
    ) -> None:
        """`receive` is called with events of one kind and request. If it raises, `unhandled` is
        called with the request and the error, and delivery continues with the next events.
        """
        super().__init__(parent)
        self._events: deque[Event] = deque()
        self._engine = engine(self._events.append)
        self._receive, self._unhandled = receive, unhandled
        self._last_request = 0
        self._outstanding: dict[int, Command] = {}
        self._cancelled: set[int] = set()
        self._timer = QTimer(
            self, interval=_DRAIN_MILLISECONDS, timerType=Qt.TimerType.PreciseTimer
        )
        self._timer.timeout.connect(self.drain)

    def start(self) -> None:
        """Start the engine's thread, which imports torch; call it after the first paint."""
        self._engine.start()

    def stop(self) -> None:
        """Stop the engine and wait for it; may block."""
        self._engine.stop()

    def send(self, command: Callable[[int], Command]) -> int:
        """Send the command made with a fresh request number; returns the number."""
        self._last_request += 1
        made = command(self._last_request)
        self._outstanding[made.request] = made
        self._engine.send(made)
        self._timer.start()
        return made.request

    def cancel(self, request: int) -> None:
        """Stop a request; its last event still comes."""
        if request in self._outstanding:
            self._cancelled.add(request)
            self._engine.send(Cancel(request))

    def is_cancelled(self, request: int) -> bool:
        """Whether this request was cancelled."""
        return request in self._cancelled

    def drain(self) -> None:
        """Deliver the queued events."""
        batch: list[Event] = []
        while self._events:
            batch.append(self._events.popleft())
        for (kind, request), group in groupby(batch, lambda each: (type(each), each.request)):
            events = list(group)
            try:
                self._receive(events)
            except Exception as error:  # noqa: BLE001  (the next events are delivered all the same)
                _log.exception("%s could not be handled", kind.__name__)
                self._end_unhandled(request, error)
            for event in events:
                if self._is_last(event):
                    self._outstanding.pop(event.request, None)
                    self._cancelled.discard(event.request)
        if not self._outstanding:
            self._timer.stop()

    def _end_unhandled(self, request: int, error: Exception) -> None:
        try:
            self._unhandled(request, error)
        except Exception:  # noqa: BLE001  (as above)
            _log.exception("request %d could not be ended after its handler failed", request)

    def _is_last(self, event: Event) -> bool:
        """Whether the request is over with this event."""
        match event:
            case ModelLoaded() | Finished() | Failed():
                return True
            case AdaptersSet() | SnapshotLoaded() | SnapshotSaved() | TokensCounted():
                return True
            case ModelUnloaded():
                # A failing load first reports that the model before it was unloaded.
                command = self._outstanding.get(event.request)
                failing = isinstance(command, LoadModel) and event.request not in self._cancelled
                return isinstance(command, UnloadModel) or not failing
            case LoadProgress() | PromptProgress() | Text():
                return False
            case _:
                assert_never(event)
