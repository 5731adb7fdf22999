"""Sideways scrolling inside a card, for what is wider than the reading column.

A thin bar at the foot of the card shows and moves the part that is seen; nothing is cut off
without a way to reach it.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter

BAR = 4  # pixels: thickness of the bar
GRIP = 12  # pixels at the foot of the card that take hold of the bar


class Sideways:
    """How far the content of one card is scrolled to the side."""

    def __init__(self) -> None:
        self.content = 0.0  # pixels wide
        self.room = 0.0  # pixels of it that are seen
        self.offset = 0.0

    @property
    def overflows(self) -> bool:
        """Whether there is more than can be seen."""
        return self.content > self.room + 1

    def fit(self, content: float, room: float) -> None:
        """Set the widths; the offset stays within them."""
        self.content, self.room = content, room
        self.move_to(self.offset)

    def move_to(self, offset: float) -> bool:
        """Scroll to an offset; returns whether that changed anything."""
        before = self.offset
        self.offset = max(0.0, min(offset, self.content - self.room))
        return self.offset != before

    def drag_to(self, x: float) -> bool:
        """Scroll as if the middle of the bar were taken to `x` of the seen part."""
        return self.move_to(x / max(self.room, 1.0) * self.content - self.room / 2)

    def paint(self, painter: QPainter, left: float, bottom: float, color: QColor) -> None:
        """Draw the bar with its lower edge at `bottom`."""
        if not self.overflows:
            return
        length = max(24.0, self.room * self.room / self.content)
        span = max(self.content - self.room, 1.0)
        x = left + (self.room - length) * self.offset / span
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        painter.drawRoundedRect(QRectF(x, bottom - BAR, length, BAR), BAR / 2, BAR / 2)
        painter.setBrush(Qt.BrushStyle.NoBrush)
