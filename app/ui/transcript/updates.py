"""Update throttling of streaming answers: pieces of text are batched into fewer layouts.

The interval grows with the cost of the last layout and paint (a long paragraph, a slow machine),
so that most of the GUI thread's time is left for user input.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

from app.domain.message import Message

INTERVAL_FACTOR = (
    8  # minimum interval between the starts of two updates, as a multiple of an update's cost
)


class Updates:
    """Batches pieces of text and passes them to `show(message, text)` at a limited rate."""

    def __init__(self, parent: QObject, show: Callable[[Message, str], None]) -> None:
        self._show = show
        self._added: dict[int, tuple[Message, list[str]]] = {}  # by message: as it is now
        self._ready_at = 0.0
        self._paint_seconds = 0.0  # seconds that the last paint took
        self._timer = QTimer(parent)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.flush)

    def add(self, message: Message, text: str) -> None:
        """Show a message with added text now, or after the throttling interval."""
        _, pieces = self._added.get(message.id, (message, []))
        self._added[message.id] = message, [*pieces, text]
        wait = self._ready_at - time.perf_counter()
        if wait <= 0:
            self.flush()
        elif not self._timer.isActive():
            self._timer.start(int(wait * 1000) + 1)

    def flush(self) -> None:
        """Show the batched text."""
        self._timer.stop()
        found, self._added = self._added, {}
        if found:
            began = time.perf_counter()
            for message, pieces in found.values():
                self._show(message, "".join(pieces))
            now = time.perf_counter()
            # The paint event follows later; it is assumed to take as long as the last one.
            self._ready_at = now + (INTERVAL_FACTOR - 1) * (now - began + self._paint_seconds)

    def record_paint(self, seconds: float) -> None:
        """Record the duration of a paint event."""
        self._paint_seconds = seconds
