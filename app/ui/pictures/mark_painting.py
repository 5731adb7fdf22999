"""Paints boxes and points over a picture: two-tone outlines, and plates with their labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QGuiApplication,
    QImage,
    QPainter,
    QPen,
)

from app.domain.marks import Mark
from app.system.translation import listed, tr, trn
from app.ui.theme.theme import SMALL, font
from app.ui.widgets.direction import has_right_to_left

# Light enough for black words; next to a black line each is seen on any picture.
COLORS = (
    "#FFC22E", "#3FA7FF", "#FF6B6B", "#3DD17A", "#C48BFF", "#FF9A3D", "#22D3C5", "#FF85C8",
)  # fmt: skip
INK = "#000000"
_LINE, _EDGE = 2.0, 1.5  # pixels: the colour, and black on both sides of it
_RADIUS = 6.0  # of a point
_PLATE = 18.0  # height of a plate
_PADDING = 5.0
_WIDEST = 220.0  # plate
_MOST_PLACED = 120  # marks whose plates look for a free place
_MOST_SPOKEN = 20  # labels
_EXPORT_SIDE = 1000.0  # pixels of the longer side of a picture on which a line has `_LINE`


def label_counts(marks: Sequence[Mark]) -> Counter[str]:
    """How many marks there are of each label, in their order."""
    return Counter(mark.label for mark in marks)


def label_colors(marks: Sequence[Mark]) -> dict[str, QColor]:
    """A colour for each label, by turns."""
    return {label: QColor(COLORS[at % len(COLORS)]) for at, label in enumerate(label_counts(marks))}


def marks_words(marks: Sequence[Mark]) -> str:
    """What is drawn, such as "3 boxes: cat, cat, dog"."""
    said: list[str] = []
    boxes = [mark.label for mark in marks if not mark.is_point]
    points = [mark.label for mark in marks if mark.is_point]
    if boxes:
        words = trn("{count} box", "{count} boxes", len(boxes))
        said.append(_with_labels(words, boxes))
    if points:
        words = trn("{count} point", "{count} points", len(points))
        said.append(_with_labels(words, points))
    return " · ".join(said)


def _with_labels(words: str, labels: Sequence[str]) -> str:
    named = [label for label in labels if label][:_MOST_SPOKEN]
    return tr("{words}: {labels}", words=words, labels=listed(named)) if named else words


def painted_over(image: QImage, marks: Sequence[Mark], colors: Mapping[str, QColor]) -> QImage:
    """A copy of a picture with marks, whose lines and words have a size that fits the picture."""
    made = image.convertToFormat(QImage.Format.Format_RGB32)
    unit = max(1.0, max(made.width(), made.height()) / _EXPORT_SIDE)
    painter = QPainter(made)
    painter.scale(unit, unit)
    area = QRectF(QPointF(0, 0), QSizeF(made.size()) / unit)
    paint_marks(painter, area, area, marks, colors)
    painter.end()
    return made


def encoded(image: QImage, suffix: str) -> bytes:
    """The file of a picture: JPEG by its suffix, else PNG."""
    kind = "JPEG" if suffix.lower() in (".jpg", ".jpeg") else "PNG"
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, kind)  # type: ignore[call-overload]
    return bytes(content.data())


def paint_marks(
    painter: QPainter,
    area: QRectF,
    seen: QRectF,
    marks: Sequence[Mark],
    colors: Mapping[str, QColor],
) -> None:
    """Paint marks over a picture in `area`, of which the part `seen` is seen."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setClipRect(seen)
    words = font(SMALL, QFont.Weight.Medium)
    painter.setFont(words)
    places = [(mark, placed) for mark in marks if (placed := _place(mark, area)).intersects(seen)]
    places.sort(key=lambda each: each[1].width() * each[1].height(), reverse=True)
    for mark, place in places:
        _paint_outline(painter, mark, place, colors[mark.label])
    plates: list[QRectF] = []
    metrics = QFontMetricsF(words)
    for mark, place in places:
        if mark.label:
            size = QSizeF(
                min(
                    metrics.horizontalAdvance(mark.label) + 2 * _PADDING + 1, _WIDEST, seen.width()
                ),
                _PLATE,
            )
            others = plates if len(places) <= _MOST_PLACED else []
            plate = _plate(mark, place & seen, size, seen, others)
            plates.append(plate)
            _paint_plate(painter, mark.label, plate, colors[mark.label], metrics)
    painter.restore()


def _place(mark: Mark, area: QRectF) -> QRectF:
    """Where a mark is; a point has the size of its disc."""
    left, top = area.left() + mark.left * area.width(), area.top() + mark.top * area.height()
    if mark.is_point:
        return QRectF(left - _RADIUS, top - _RADIUS, 2 * _RADIUS, 2 * _RADIUS)
    size = QSizeF((mark.right - mark.left) * area.width(), (mark.bottom - mark.top) * area.height())
    return QRectF(QPointF(left, top), size.expandedTo(QSizeF(1, 1)))


def _paint_outline(painter: QPainter, mark: Mark, place: QRectF, color: QColor) -> None:
    ink = QColor(INK)
    if mark.is_point:
        painter.setPen(QPen(ink, _EDGE))
        painter.setBrush(color)
        painter.drawEllipse(place.adjusted(0.75, 0.75, -0.75, -0.75))
        painter.setBrush(ink)
        painter.drawEllipse(place.center(), 1.0, 1.0)
        return
    painter.setBrush(Qt.BrushStyle.NoBrush)
    inset = min((_LINE + 2 * _EDGE) / 2, place.width() / 4, place.height() / 4)
    line = place.adjusted(inset, inset, -inset, -inset)  # a box at the side is seen whole
    for width, each in ((_LINE + 2 * _EDGE, ink), (_LINE, color)):
        pen = QPen(each, width)
        pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
        painter.setPen(pen)
        painter.drawRect(line)


def _plate(
    mark: Mark, place: QRectF, size: QSizeF, bounds: QRectF, others: Sequence[QRectF]
) -> QRectF:
    """Where the label of a mark is: the first of some places that is free, within the bounds."""
    mirrored = QGuiApplication.isRightToLeft()
    start = place.right() - size.width() if mirrored else place.left()
    if mark.is_point:
        beside = place.left() - size.width() - 2 if mirrored else place.right() + 2
        other = place.right() + 2 if mirrored else place.left() - size.width() - 2
        middle = place.center().y() - size.height() / 2
        corners = [(beside, middle), (other, middle)]
    else:
        corners = [(start, place.top() - size.height()), (start, place.bottom())]
        corners.insert(1, (start, place.top()))
        end = place.left() if mirrored else place.right() - size.width()
        corners += [(end, place.top() - size.height()), (end, place.bottom() - size.height())]
    found = [_within(QRectF(QPointF(x, y), size), bounds) for x, y in corners]
    free = (each for each in found if not any(each.intersects(other) for other in others))
    return next(free, found[0])


def _within(plate: QRectF, bounds: QRectF) -> QRectF:
    left = min(max(plate.left(), bounds.left()), bounds.right() - plate.width())
    top = min(max(plate.top(), bounds.top()), bounds.bottom() - plate.height())
    return QRectF(QPointF(left, top), plate.size())


def _paint_plate(
    painter: QPainter, label: str, plate: QRectF, color: QColor, metrics: QFontMetricsF
) -> None:
    painter.setPen(QPen(QColor(INK), 1))
    painter.setBrush(color)
    painter.drawRoundedRect(plate.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)
    directions = Qt.LayoutDirection
    is_mirrored = has_right_to_left(label)
    painter.setLayoutDirection(directions.RightToLeft if is_mirrored else directions.LeftToRight)
    room = plate.adjusted(_PADDING, 0, -_PADDING, 0)
    words = metrics.elidedText(label, Qt.TextElideMode.ElideRight, room.width() + 1)
    painter.drawText(room, Qt.AlignmentFlag.AlignCenter, words)
