"""Text of a streaming answer on its way to the transcript: shown at once, or when there is time.

An update that cost much (a long paragraph, a slow machine) makes the next one wait, so that the
window always has most of its time for the person.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

REST = 8  # times the cost of an update from its beginning to that of the next


class Updates:
    """Gathers pieces of text and hands them to `show(message, text)` at a bearable pace."""

    def __init__(self, parent: QObject, show: Callable[[int, str], None]) -> None:
        self._show = show
        self._pieces: list[str] = []
        self._message = 0
        self._ready_at = 0.0
        self._drawing = 0.0  # seconds the last drawing took
        self._timer = QTimer(parent)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.flush)

    def add(self, message_id: int, text: str) -> None:
        """Show text now, or as soon as there is time for it."""
        if message_id != self._message:
            self.flush()
        self._message = message_id
        self._pieces.append(text)
        wait = self._ready_at - time.perf_counter()
        if wait <= 0:
            self.flush()
        elif not self._timer.isActive():
            self._timer.start(int(wait * 1000) + 1)

    def flush(self) -> None:
        """Show what has come since the last time."""
        self._timer.stop()
        text, self._pieces = "".join(self._pieces), []
        if text:
            began = time.perf_counter()
            self._show(self._message, text)
            now = time.perf_counter()
            # Drawing follows later and will take about as long as the last time.
            self._ready_at = now + (REST - 1) * (now - began + self._drawing)

    def drawn(self, seconds: float) -> None:
        """A drawing took so long."""
        self._drawing = seconds
