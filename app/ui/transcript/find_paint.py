"""Paints the matches of Find in conversation over a block.

The colour is mixed with what is painted already, darkening a light page and lightening a dark one,
so that text, selection and syntax colours stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from app.ui.blocks.code import CodeView
from app.ui.blocks.style import CODE_PADDING, ReadingStyle
from app.ui.transcript.find import Match
from app.ui.transcript.placed_block import PlacedBlock


def paint_matches(
    painter: QPainter,
    part: PlacedBlock,
    origin: QPointF,
    style: ReadingStyle,
    clip: QRectF,
    matches: Sequence[Match],
    current: Match | None,
) -> None:
    """Paint the matches of one part; they must be in text order."""
    view = part.view
    inset = CODE_PADDING - 2.0 if isinstance(view, CodeView) else -3.0
    inside = QRectF(origin, part.view_size).adjusted(inset, 0.0, -inset, 0.0) & clip
    if inside.isEmpty():
        return
    painter.save()
    painter.setClipRect(inside, Qt.ClipOperation.IntersectClip)
    modes = QPainter.CompositionMode
    mode = modes.CompositionMode_Screen if style.palette.dark else modes.CompositionMode_Multiply
    painter.setPen(Qt.PenStyle.NoPen)
    for match in _between(part, matches, inside.top() - origin.y(), inside.bottom() - origin.y()):
        color = style.current_match if match is current else style.match
        for area in view.areas(match.start, match.end):
            box = area.translated(origin).adjusted(-1, 1, 1, -1)
            painter.setCompositionMode(mode)
            painter.setBrush(color)
            painter.drawRoundedRect(box, 3, 3)
            if match is current and style.high_contrast:
                painter.setCompositionMode(modes.CompositionMode_SourceOver)
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.setPen(QPen(style.ink, 2))
                painter.drawRoundedRect(box, 3, 3)
                painter.setPen(Qt.PenStyle.NoPen)
    painter.restore()


def _between(
    part: PlacedBlock, matches: Sequence[Match], top: float, bottom: float
) -> Sequence[Match]:
    """The matches on the lines between two y coordinates, and possibly more."""
    view = part.view
    first = min(view.hit(0.0, max(top, 0.0)), view.hit(part.width, max(top, 0.0)))
    last = max(view.hit(0.0, bottom), view.hit(part.width, bottom))
    start = bisect_left(matches, first, key=lambda match: match.end)
    return matches[start : bisect_right(matches, last, key=lambda match: match.start)]
