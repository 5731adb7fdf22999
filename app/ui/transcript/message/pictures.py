"""Pictures in a message: places of their thumbnails in lines, and how one is painted."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPen, QPixmap, QTransform

from app.domain.file_words import image_name, image_words
from app.domain.parts import ImagePart
from app.ui.blocks.style import ReadingStyle, mixed
from app.ui.theme.icons import pixmap
from app.ui.theme.theme import RADIUS_CONTROL

LONGEST = 220.0  # pixels of the longer side of a thumbnail
HIGHEST = 140.0  # of one of several, so that they are a quiet line
SHORTEST = 44.0  # of a side, around which there is ground if the picture is smaller
GAP = 8.0  # between thumbnails
_UNKNOWN = QSizeF(160.0, 120.0)  # of a picture whose size is not known
_NARROWEST_WORDS = 96.0  # pixels: a narrower area has no room for a sentence
_ICON = 20


def thumbnail_size(image: ImagePart, width: float, *, is_alone: bool) -> QSizeF:
    """The area of a picture's thumbnail in a column of this width; it is known before the picture."""
    size = QSizeF(image.width, image.height)
    if size.isEmpty():
        size = _UNKNOWN
    most = min(LONGEST, width) / size.width(), (LONGEST if is_alone else HIGHEST) / size.height()
    share = min(1.0, *most)
    return QSizeF(*(max(side * share, SHORTEST) for side in (size.width(), size.height())))


@dataclass(slots=True)
class PictureLines:
    """Places thumbnails one after another from the leading edge, in lines; y grows downwards."""

    width: float  # of the column
    top: float  # of the first line
    is_alone: bool  # there is one
    bottom: float = 0.0  # of the last one
    _end: float = 0.0  # x of the end of the last line

    def place(self, image: ImagePart) -> QRectF:
        """The area of the next one; its x is the distance from the leading edge."""
        size = thumbnail_size(image, self.width, is_alone=self.is_alone)
        if self._end and self._end + GAP + size.width() > self.width + 0.5:
            self.top, self._end = self.bottom + GAP, 0.0
        left = self._end + GAP if self._end else 0.0
        self._end = left + size.width()
        self.bottom = max(self.bottom, self.top + size.height())
        return QRectF(QPointF(left, self.top), size)


def tip(image: ImagePart) -> str:
    """The tooltip of a thumbnail: what is seen, the file's name and the picture's size."""
    names = image_name(image), image_words(image)
    return "\n".join(dict.fromkeys(names))


def paint(
    painter: QPainter,
    style: ReadingStyle,
    area: QRectF,
    shown: QPixmap | str | None,
    *,
    hovered: bool,
    focused: bool,
) -> None:
    """Paint a thumbnail, or why there is none; None: a ground of its size."""
    ground = mixed(style.secondary, style.card, 0.12)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ground)
    painter.drawRoundedRect(area, RADIUS_CONTROL, RADIUS_CONTROL)
    if isinstance(shown, QPixmap):
        _paint_picture(painter, area, shown)
    else:
        _paint_words(painter, style, area, shown or "")
    edge = style.ink if style.high_contrast else mixed(style.secondary, style.card, 0.3)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(style.accent if hovered else edge, 2 if style.high_contrast else 1))
    painter.drawRoundedRect(area.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS_CONTROL, RADIUS_CONTROL)
    if focused:
        painter.setPen(QPen(style.accent, 2))
        painter.drawRoundedRect(area.adjusted(-3, -3, 3, 3), RADIUS_CONTROL + 3, RADIUS_CONTROL + 3)


def _paint_picture(painter: QPainter, area: QRectF, picture: QPixmap) -> None:
    """Paint the whole picture in the middle of its area, with round corners."""
    size = QSizeF(picture.size())
    if size.width() > area.width() or size.height() > area.height():
        size.scale(area.size(), Qt.AspectRatioMode.KeepAspectRatio)
    inside = QRectF(QPointF(), size)
    inside.moveCenter(area.center())
    share = size.width() / picture.width(), size.height() / picture.height()
    brush = QBrush(picture)
    place = QTransform.fromTranslate(inside.left(), inside.top())
    brush.setTransform(place.scale(*share))
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(brush)
    painter.drawRoundedRect(inside, RADIUS_CONTROL, RADIUS_CONTROL)


def _paint_words(painter: QPainter, style: ReadingStyle, area: QRectF, fault: str) -> None:
    """Paint the icon of a picture that is not there, and why where there is room for it."""
    color: QColor = style.secondary
    ratio = painter.device().devicePixelRatio()
    words = fault if area.width() >= _NARROWEST_WORDS and area.height() >= 72 else ""
    middle = area.center() - QPointF(_ICON / 2, _ICON / 2 + (20 if words else 0))
    name = "warning" if fault else "image"
    painter.drawPixmap(middle, pixmap(name, color.name(), _ICON, ratio))
    if words:
        painter.setFont(style.small)
        painter.setPen(color)
        inside = area.adjusted(8, 0, -8, -4)
        inside.setTop(middle.y() + _ICON + 4)
        flags = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop
        painter.drawText(inside, int(flags) | int(Qt.TextFlag.TextWordWrap), words)
