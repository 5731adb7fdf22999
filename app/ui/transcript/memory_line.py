"""Line above the first message that the model still reads, in a chat longer than its context."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen

from app.system.translation import tr
from app.ui.blocks.style import ReadingStyle

HEIGHT = 36.0  # pixels


def words() -> str:
    """The text in the line."""
    return tr("The model's memory begins here")


def tip() -> str:
    """What the line means, for its tooltip."""
    return tr("The chat is longer than the model can take in: it no longer reads what is above.")


def paint(painter: QPainter, style: ReadingStyle, area: QRectF) -> None:
    """Paint the text in the middle of `area`, between two rules."""
    metrics = QFontMetricsF(style.small)
    half = metrics.horizontalAdvance(words()) / 2 + 12
    middle = area.center()
    painter.setPen(QPen(style.hairline, 2 if style.high_contrast else 1))
    y = round(middle.y()) + 0.5
    for start, end in ((area.left(), middle.x() - half), (middle.x() + half, area.right())):
        if end > start:
            painter.drawLine(round(start), round(y), round(end), round(y))
    painter.setFont(style.small)
    painter.setPen(style.secondary)
    painter.drawText(area, Qt.AlignmentFlag.AlignCenter, words())
