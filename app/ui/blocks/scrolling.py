"""Horizontal scrolling of one code block or table that is wider than the text column.

A thin scroll bar at the bottom of the card shows the visible range and can be dragged.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter

BAR_HEIGHT = 4  # pixels: thickness of the scroll bar
GRAB_HEIGHT = 12  # pixels: height of the area in which the bar can be grabbed


class HorizontalScroll:
    """Horizontal scroll state of one card: content width, viewport width and offset, in pixels."""

    def __init__(self) -> None:
        self.content_width = 0.0
        self.viewport_width = 0.0
        self.offset = 0.0

    @property
    def overflows(self) -> bool:
        """Whether the content is wider than the viewport."""
        return self.content_width > self.viewport_width + 1

    def fit(self, content_width: float, viewport_width: float) -> None:
        """Set both widths and clamp the offset."""
        self.content_width, self.viewport_width = content_width, viewport_width
        self.move_to(self.offset)

    def move_to(self, offset: float) -> bool:
        """Scroll to an offset, clamped; returns whether the offset changed."""
        before = self.offset
        self.offset = max(0.0, min(offset, self.content_width - self.viewport_width))
        return self.offset != before

    def drag_to(self, x: float) -> bool:
        """Scroll so that the middle of the bar is at `x`, in viewport coordinates."""
        return self.move_to(
            x / max(self.viewport_width, 1.0) * self.content_width - self.viewport_width / 2
        )

    def paint(self, painter: QPainter, left: float, bottom: float, color: QColor) -> None:
        """Paint the scroll bar with its lower edge at `bottom`."""
        if not self.overflows:
            return
        length = max(24.0, self.viewport_width * self.viewport_width / self.content_width)
        span = max(self.content_width - self.viewport_width, 1.0)
        x = left + (self.viewport_width - length) * self.offset / span
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        painter.drawRoundedRect(
            QRectF(x, bottom - BAR_HEIGHT, length, BAR_HEIGHT), BAR_HEIGHT / 2, BAR_HEIGHT / 2
        )
        painter.setBrush(Qt.BrushStyle.NoBrush)
