"""Header above each of two compared answers: one line with what it is written with, and a rule."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter

from app.ui.blocks.style import ReadingStyle

_ABOVE, _BELOW = 4.0, 12.0  # pixels above the words, and below the rule


def height(style: ReadingStyle) -> float:
    """The height of a header, with the gap to the answer below it."""
    return _ABOVE + style.note_face.line + 8.0 + _BELOW


def paint(painter: QPainter, style: ReadingStyle, area: QRectF, words: str) -> None:
    """Paint the words above the rule; `area` has the height of a header."""
    face = _font(style)
    painter.setFont(face)
    painter.setPen(style.ink)
    line = QRectF(area.left(), area.top() + _ABOVE, area.width(), style.note_face.line)
    shown = QFontMetricsF(face).elidedText(words, Qt.TextElideMode.ElideRight, area.width())
    painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, shown)
    width = 2.0 if style.high_contrast else 1.0
    painter.fillRect(
        QRectF(area.left(), round(area.bottom() - _BELOW) - width, area.width(), width),
        style.hairline,
    )


def is_cut(style: ReadingStyle, width: float, words: str) -> bool:
    """Whether the words do not fit in a column of this width."""
    return QFontMetricsF(_font(style)).horizontalAdvance(words) > width


def _font(style: ReadingStyle) -> QFont:
    face = QFont(style.note)
    face.setWeight(QFont.Weight.Medium)
    return face
