"""Update throttling of streaming answers: pieces of text are batched into fewer layouts.

The interval grows with the cost of the last layout and paint (a long paragraph, a slow machine),
so that most of the GUI thread's time is left for user input.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

INTERVAL_FACTOR = (
    8  # minimum interval between the starts of two updates, as a multiple of an update's cost
)


class Updates:
    """Batches pieces of text and passes them to `show(message, text)` at a limited rate."""

    def __init__(self, parent: QObject, show: Callable[[int, str], None]) -> None:
        self._show = show
        self._pieces: dict[int, list[str]] = {}  # by message
        self._ready_at = 0.0
        self._paint_seconds = 0.0  # seconds that the last paint took
        self._timer = QTimer(parent)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.flush)

    def add(self, message_id: int, text: str) -> None:
        """Show text now, or after the throttling interval."""
        self._pieces.setdefault(message_id, []).append(text)
        wait = self._ready_at - time.perf_counter()
        if wait <= 0:
            self.flush()
        elif not self._timer.isActive():
            self._timer.start(int(wait * 1000) + 1)

    def flush(self) -> None:
        """Show the batched text."""
        self._timer.stop()
        found, self._pieces = self._pieces, {}
        if found:
            began = time.perf_counter()
            for message_id, pieces in found.items():
                self._show(message_id, "".join(pieces))
            now = time.perf_counter()
            # The paint event follows later; it is assumed to take as long as the last one.
            self._ready_at = now + (INTERVAL_FACTOR - 1) * (now - began + self._paint_seconds)

    def record_paint(self, seconds: float) -> None:
        """Record the duration of a paint event."""
        self._paint_seconds = seconds
