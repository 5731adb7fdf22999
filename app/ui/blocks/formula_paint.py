"""Painting of typeset formulas, from a small cache of pixmaps.

Rendering the SVG takes 0.3 ms, too long for a screen of formulas in each frame. A pixmap is drawn at
whole device pixels with its baseline on one, so that it is as sharp as the text.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from PySide6.QtCore import QByteArray, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPaintEngine, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.ui.blocks.typesetting import COLOR, Picture


def draw_formula(
    painter: QPainter, picture: Picture, baseline: QPointF, size: float, color: QColor
) -> None:
    """Draw a formula whose baseline begins at a point, for text of `size` pixels."""
    if painter.paintEngine().type() is QPaintEngine.Type.Pdf:
        height = (picture.ascent + picture.descent) * size
        top = baseline.y() - picture.ascent * size
        area = QRectF(baseline.x(), top, picture.width * size, height)
        painter.save()
        painter.setPen(Qt.PenStyle.NoPen)  # the renderer draws outlines with the current pen
        QSvgRenderer(_svg(picture, color.name())).render(painter, area)
        painter.restore()
        return
    ratio = painter.device().devicePixelRatio()
    above = ceil(picture.ascent * size * ratio) / ratio
    x, y = round(baseline.x() * ratio) / ratio, round(baseline.y() * ratio) / ratio
    painter.drawPixmap(QPointF(x, y - above), _pixmap(picture, size, color.name(), ratio))


def _svg(picture: Picture, color: str) -> QByteArray:
    return QByteArray(picture.svg.replace(COLOR, color).encode())


@lru_cache(maxsize=160)
def _pixmap(picture: Picture, size: float, color: str, ratio: float) -> QPixmap:
    scale = size * ratio
    above, below = ceil(picture.ascent * scale), ceil(picture.descent * scale)
    result = QPixmap(max(ceil(picture.width * scale), 1), max(above + below, 1))
    result.fill(Qt.GlobalColor.transparent)
    renderer = QSvgRenderer(_svg(picture, color))
    painter = QPainter(result)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    height = (picture.ascent + picture.descent) * scale
    top = above - picture.ascent * scale
    renderer.render(painter, QRectF(0.0, top, picture.width * scale, height))
    painter.end()
    result.setDevicePixelRatio(ratio)
    return result
