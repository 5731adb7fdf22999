"""Canvas of one picture: fitted at first, larger and smaller by keys, wheel and drag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QGuiApplication,
    QImage,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QWidget

from app.domain.marks import Mark
from app.ui.pictures.mark_painting import paint_marks, painted_over
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import BODY, font
from app.ui.widgets import accessibility

STEP = 1.25  # of the zoom
MOST = 16.0  # screen pixels of one pixel of a picture
_MARGIN = 12.0  # pixels around a fitted picture
_FINE_MILLISECONDS = 120  # after the last step it is scaled with more care
_ICON = 24


class PictureCanvas(QWidget):
    """Shows a picture in any size; the arrow keys go to the next one."""

    zoomed = Signal()
    moved = Signal(int)  # so many pictures on
    copy_requested = Signal()
    save_requested = Signal()
    marks_toggled = Signal()  # hide those over the picture, or show them again

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        accessibility.register_role(PictureCanvas, QAccessible.Role.Graphic)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumSize(120, 120)
        self._image: QImage | None = None
        self._full = QSizeF(1.0, 1.0)  # pixels of the picture itself, of which this may be a copy
        self._fault = ""
        self._marks: Sequence[Mark] = ()
        self._colors: Mapping[str, QColor] = {}  # by label
        self._scale = 0.0  # screen pixels of one pixel of the picture; 0: it is fitted
        self._middle = QPointF(0.5, 0.5)  # what is in the middle, as shares of the picture
        self._drag: tuple[QPointF, QPointF] | None = None  # where it began, and the middle then
        self._fine: QPixmap | None = None  # the picture in the size that is shown
        self._finer = QTimer(self, singleShot=True, interval=_FINE_MILLISECONDS)
        self._finer.timeout.connect(self._make_fine)
        follow_palette(self._recolor)

    def _recolor(self, palette: Palette) -> None:
        self.update()

    @property
    def image(self) -> QImage | None:
        """The shown picture; None: it is not there yet, or cannot be read."""
        return self._image

    @property
    def is_fitted(self) -> bool:
        """Whether the picture is shown whole."""
        return not self._scale

    @property
    def scale(self) -> float:
        """Screen pixels of one pixel of the picture."""
        return self._scale or self._fitted()

    def show_image(self, image: QImage, full: QSizeF) -> None:
        """Show a picture, or a copy of one of the size `full`."""
        self._image, self._full, self._fault = image, full, ""
        self.fit()

    def show_none(self, fault: str = "") -> None:
        """Show that there is no picture yet, or why there is none."""
        self._image, self._fault = None, fault
        self.fit()

    def show_marks(self, marks: Sequence[Mark], colors: Mapping[str, QColor]) -> None:
        """Draw marks over the picture in the colours of their labels."""
        self._marks, self._colors = marks, colors
        self.update()

    def marked_image(self) -> QImage | None:
        """A copy of the shown picture with its marks; None: there is no picture."""
        if self._image is None:
            return None
        return painted_over(self._image, self._marks, self._colors)

    def fit(self) -> None:
        """Show all of the picture, no pixel larger than one of the screen."""
        self._scale, self._middle = 0.0, QPointF(0.5, 0.5)
        self._changed()

    def zoom(self, steps: int, at: QPointF | None = None) -> None:
        """Show the picture larger or smaller; the point `at` of the canvas stays where it is."""
        least = min(self._fitted(), 1.0)
        self.set_scale(min(max(self.scale * STEP**steps, least), MOST), at)

    def set_scale(self, scale: float, at: QPointF | None = None) -> None:
        """Show so many screen pixels for a pixel of the picture."""
        if self._image is None:
            return
        place = at or QRectF(self.rect()).center()
        before = self._area()
        share = QPointF(
            (place.x() - before.left()) / before.width(),
            (place.y() - before.top()) / before.height(),
        )
        self._scale = 0.0 if scale <= self._fitted() and self._fitted() <= 1.0 else scale
        size = self._size()
        off = place - QRectF(self.rect()).center()
        self._middle = share - QPointF(off.x() / size.width(), off.y() / size.height())
        self._changed()

    def _changed(self) -> None:
        size = self._size()
        self._middle = QPointF(
            _within(self._middle.x(), self.width(), size.width()),
            _within(self._middle.y(), self.height(), size.height()),
        )
        self._fine = None
        self._finer.start()
        shapes = Qt.CursorShape
        can_pan = size.width() > self.width() or size.height() > self.height()
        self.setCursor(shapes.OpenHandCursor if can_pan else shapes.ArrowCursor)
        self.update()
        self.zoomed.emit()

    def _fitted(self) -> float:
        """The scale at which all of the picture is seen."""
        room = QSizeF(self.size()) * self.devicePixelRatioF()
        margin = 2 * _MARGIN * self.devicePixelRatioF()
        wide = (room.width() - margin) / self._full.width()
        return max(min(1.0, wide, (room.height() - margin) / self._full.height()), 1e-4)

    def _size(self) -> QSizeF:
        """The size of the picture on the canvas."""
        return self._full * (self.scale / self.devicePixelRatioF())

    def _area(self) -> QRectF:
        """The area of the picture, of which the canvas shows a part."""
        size, middle = self._size(), QRectF(self.rect()).center()
        corner = QPointF(self._middle.x() * size.width(), self._middle.y() * size.height())
        return QRectF(middle - corner, size)

    def _make_fine(self) -> None:
        """Scale a picture down once with more care than every painting takes."""
        if self._image is None:
            return
        ratio = self.devicePixelRatioF()
        wanted = (self._size() * ratio).toSize()
        if wanted.width() < self._image.width() and not wanted.isEmpty():
            modes = (
                Qt.AspectRatioMode.IgnoreAspectRatio,
                Qt.TransformationMode.SmoothTransformation,
            )
            self._fine = QPixmap.fromImage(self._image.scaled(wanted, *modes))
            self.update()

    # --- Qt -------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._changed()

    def paintEvent(self, event: QPaintEvent) -> None:
        palette, area = shown_palette(), QRectF(self.rect())
        painter = QPainter(self)
        painter.fillRect(area, QColor(palette.sunken))
        if self._image is None:
            self._paint_none(painter, area)
        elif self._fine is not None:
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            painter.drawPixmap(self._area(), self._fine, QRectF(self._fine.rect()))
        else:
            smooth = self.scale < 3  # pixels that large are looked at one by one
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, smooth)
            painter.drawImage(self._area(), self._image)
        if self._image is not None and self._marks:
            place = self._area()
            paint_marks(painter, place, place & area, self._marks, self._colors)
        if self.hasFocus():
            painter.setPen(QPen(QColor(palette.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(area.adjusted(1, 1, -1, -1))
        painter.end()

    def _paint_none(self, painter: QPainter, area: QRectF) -> None:
        color, ratio = shown_palette().secondary, self.devicePixelRatioF()
        name = "warning" if self._fault else "image"
        corner = area.center() - QPointF(_ICON / 2, _ICON / 2)
        painter.drawPixmap(corner, icons.pixmap(name, color, _ICON, ratio))
        painter.setPen(QColor(color))
        painter.setFont(font(BODY))
        below = area.adjusted(24, area.height() / 2 + _ICON, -24, 0)
        flags = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop
        painter.drawText(below, int(flags) | int(Qt.TextFlag.TextWordWrap), self._fault)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if turned := event.angleDelta().y():
            self.zoom(1 if turned > 0 else -1, event.position())
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton and self._image is not None:
            self._drag = event.position(), self._middle
            if self.cursor().shape() is Qt.CursorShape.OpenHandCursor:
                self.setCursor(Qt.CursorShape.ClosedHandCursor)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._drag is not None:
            self._pan(event.position() - self._drag[0], self._drag[1])

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._drag = None
        if self.cursor().shape() is Qt.CursorShape.ClosedHandCursor:
            self.setCursor(Qt.CursorShape.OpenHandCursor)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Show the picture in its full size there, or fitted again."""
        if self.is_fitted:
            self.set_scale(1.0, event.position())
        else:
            self.fit()

    def _pan(self, by: QPointF, middle: QPointF) -> None:
        """Move the picture so far from where this was in the middle."""
        size = self._size()
        self._middle = QPointF(
            _within(middle.x() - by.x() / size.width(), self.width(), size.width()),
            _within(middle.y() - by.y() / size.height(), self.height(), size.height()),
        )
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys, key = Qt.Key, event.key()
        mirrored = QGuiApplication.isRightToLeft()
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_requested.emit()
        elif event.matches(QKeySequence.StandardKey.Save):
            self.save_requested.emit()
        elif key in (keys.Key_Plus, keys.Key_Equal):
            self.zoom(1)
        elif key in (keys.Key_Minus, keys.Key_Underscore):
            self.zoom(-1)
        elif key == keys.Key_0:
            self.fit()
        elif key == keys.Key_1:
            self.set_scale(1.0)
        elif key == keys.Key_M:
            self.marks_toggled.emit()
        elif key in (keys.Key_Right, keys.Key_Left):
            self.moved.emit(1 if (key == keys.Key_Right) is not mirrored else -1)
        elif key in (keys.Key_Up, keys.Key_Down):
            step = self.height() / (4 if key == keys.Key_Up else -4)
            self._pan(QPointF(0.0, step), self._middle)
        else:
            super().keyPressEvent(event)


def _within(middle: float, room: float, size: float) -> float:
    """The share of a side in the middle of the room, so that there is no ground where none must be."""
    if size <= room:
        return 0.5
    half = room / size / 2
    return min(max(middle, half), 1 - half)
