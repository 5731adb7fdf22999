"""Choosing a region of the screens: frozen pictures of them, over which a rectangle is drawn.

The window is hidden while the pictures are taken and the region is chosen, so that what is behind
it can be chosen, and is shown again whatever comes of it. A region lies on one screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from PySide6.QtCore import (
    QEvent,
    QObject,
    QPoint,
    QRect,
    QRectF,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QGuiApplication,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QRegion,
    QResizeEvent,
    QScreen,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QWidget

from app.system import screen_grab
from app.system.translation import number, tr
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, label, set_margins

HIDDEN_MILLISECONDS = 250  # until the system has taken the hidden window from the screen
_LEAST = 4  # pixels of a side: less is a click
_STEP, _FINE_STEP = 16, 1  # pixels of an arrow key
_SCRIM = QColor(0, 0, 0, 128)
_LIGHT, _DARK = QColor("#FFFFFF"), QColor(0, 0, 0, 190)
_ARROWS = {
    Qt.Key.Key_Left: QPoint(-1, 0),
    Qt.Key.Key_Right: QPoint(1, 0),
    Qt.Key.Key_Up: QPoint(0, -1),
    Qt.Key.Key_Down: QPoint(0, 1),
}
Grab = Callable[[], list[tuple[QScreen, QPixmap]]]


def device_rectangle(chosen: QRect, shown: QSize, pixels: QSize) -> QRect:
    """The device pixels that a rectangle of a screen touches; the screen is `shown` so large."""
    across, down = pixels.width() / shown.width(), pixels.height() / shown.height()
    left, top = int(chosen.left() * across), int(chosen.top() * down)
    right = math.ceil((chosen.left() + chosen.width()) * across)
    bottom = math.ceil((chosen.top() + chosen.height()) * down)
    return QRect(left, top, right - left, bottom - top) & QRect(QPoint(0, 0), pixels)


class ScreenRegions(QObject):
    """Lets the user choose a region, or a whole screen."""

    taken = Signal(object)  # QImage, in device pixels
    failed = Signal()  # there is no picture of any screen
    ended = Signal()  # in any case: the window is shown again

    def __init__(self, window: QWidget, grab: Grab = screen_grab.grab) -> None:
        super().__init__(window)
        self._window, self._grab = window, grab
        self._place = QPoint()  # of the window, before it was hidden
        self._overlays: list[RegionOverlay] = []
        self._gone: list[RegionOverlay] = []  # kept: one may still be in the middle of an event
        self._begin = QTimer(self, singleShot=True, interval=HIDDEN_MILLISECONDS)
        self._begin.timeout.connect(self._take)

    @property
    def is_open(self) -> bool:
        """Whether the window is hidden for a picture."""
        return self._begin.isActive() or bool(self._overlays)

    @property
    def overlays(self) -> tuple[RegionOverlay, ...]:
        """One over each screen."""
        return tuple(self._overlays)

    def open(self) -> None:
        """Hide the window, take pictures of the screens, and let the user choose."""
        if not self.is_open:
            self._place = self._window.pos()
            self._window.hide()
            self._begin.start()

    def cancel(self) -> None:
        """Choose nothing."""
        if self.is_open:
            self._end()

    def close(self) -> None:
        """Choose nothing, and leave the window hidden: the app ends."""
        self._begin.stop()
        self._gone, self._overlays = self._overlays, []
        application = QGuiApplication.instance()
        if self._gone and isinstance(application, QGuiApplication):
            for changed in (application.screenAdded, application.screenRemoved):
                changed.disconnect(self.cancel)
        for each in self._gone:
            each.hide()
            each.pixmap = QPixmap()
            each.deleteLater()

    def _take(self) -> None:
        try:
            found = self._grab()
            self._overlays = [RegionOverlay(screen, pixmap) for screen, pixmap in found]
            for each in self._overlays:
                each.chosen.connect(self._on_chosen)
                each.cancelled.connect(self.cancel)
                each.show_over()
            application = QGuiApplication.instance()
            assert isinstance(application, QGuiApplication)
            for changed in (application.screenAdded, application.screenRemoved):
                changed.connect(self.cancel)
        finally:
            if not self._overlays:
                self._end()
        if not self._overlays:
            self.failed.emit()
            return
        at = QGuiApplication.screenAt(self._overlays[0].cursor().pos())
        first = next((each for each in self._overlays if each.shown_on is at), self._overlays[0])
        first.activateWindow()
        first.setFocus()

    def _on_chosen(self, image: QImage) -> None:
        self._end()
        self.taken.emit(image)

    def _end(self) -> None:
        self.close()
        self._window.show()
        if not self._window.isMaximized() and not self._window.isFullScreen():
            self._window.move(self._place)  # else X11 places it as a new one
        self._window.activateWindow()
        self.ended.emit()


class RegionOverlay(QWidget):
    """The frozen picture of one screen; a drag, or keys, choose a rectangle of it."""

    chosen = Signal(object)  # QImage, in device pixels
    cancelled = Signal()

    def __init__(self, screen: QScreen, pixmap: QPixmap) -> None:
        flags = Qt.WindowType.FramelessWindowHint | Qt.WindowType.WindowStaysOnTopHint
        super().__init__(None, Qt.WindowType.Window | flags)
        accessibility.register_role(RegionOverlay, QAccessible.Role.Graphic)
        self.shown_on, self.pixmap = screen, pixmap
        self._from: QPoint | None = None  # where the drag began
        self.selection = QRect()
        self.setAttribute(Qt.WidgetAttribute.WA_QuitOnClose, on=False)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setCursor(Qt.CursorShape.CrossCursor)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setWindowTitle(tr("Screenshot"))
        self.setAccessibleName(tr("Choose a region of the screen"))
        hint = tr("Drag over a region. Arrow keys move it, with Shift they change its size.")
        self.setAccessibleDescription(hint)
        self.hint = QFrame(self)
        self.hint.setObjectName("banner")
        self.hint.setCursor(Qt.CursorShape.ArrowCursor)
        self.words = label(hint, "", BODY)
        self.whole_button = TextButton(tr("Whole screen"), "primary")
        self.whole_button.clicked.connect(self._choose_whole)
        self.cancel_button = TextButton(tr("Cancel"), "quiet")
        self.cancel_button.clicked.connect(self.cancelled)
        row = QHBoxLayout(self.hint)
        set_margins(row, 14, 8, 8, 8)
        row.setSpacing(10)
        for each in (self.words, self.whole_button, self.cancel_button):
            row.addWidget(each)

    def show_over(self) -> None:
        """Cover the screen, with its own pixels in their places."""
        self.setScreen(self.shown_on)
        self.setGeometry(self.shown_on.geometry())
        self.showFullScreen()

    def pixels(self) -> QRect:
        """The device pixels of the selection."""
        return device_rectangle(self.selection, self.size(), self.pixmap.size())

    # --- choosing -------------------------------------------------------------------------------

    def _choose(self) -> None:
        if self.selection.isEmpty():
            self._choose_whole()
        else:
            self._take(self.pixels())

    def _choose_whole(self) -> None:
        self._take(self.pixmap.rect())

    def _take(self, pixels: QRect) -> None:
        image = self.pixmap.copy(pixels).toImage()
        image.setDevicePixelRatio(1.0)
        self.chosen.emit(image)

    def _select(self, rect: QRect) -> None:
        self.selection = rect
        self.hint.setVisible(self._from is None)
        self.update()

    def _step(self, by: QPoint, *, resizes: bool) -> None:
        """Move the selection, or its end, inside the screen; the first key makes one."""
        area, rect = self.rect(), QRect(self.selection)
        if rect.isEmpty():
            size = area.size() / 2
            rect = QRect(QPoint(size.width() // 2, size.height() // 2), size)
        elif resizes:
            rect.setWidth(min(max(rect.width() + by.x(), _LEAST), area.width() - rect.left()))
            rect.setHeight(min(max(rect.height() + by.y(), _LEAST), area.height() - rect.top()))
        else:
            left = min(max(rect.left() + by.x(), 0), area.width() - rect.width())
            top = min(max(rect.top() + by.y(), 0), area.height() - rect.height())
            rect.moveTo(left, top)
        self._select(rect)
        accessibility.announce(self, self._words())

    def _words(self) -> str:
        """The size of the selection in device pixels."""
        size = self.pixels().size()
        return tr("{width} × {height}", width=number(size.width()), height=number(size.height()))  # noqa: RUF001

    # --- Qt -------------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, held = Qt.Key(event.key()), event.modifiers()
        if key == Qt.Key.Key_Escape:
            self.cancelled.emit()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose()
        elif key in _ARROWS:
            step = _FINE_STEP if held & Qt.KeyboardModifier.ControlModifier else _STEP
            resizes = bool(held & Qt.KeyboardModifier.ShiftModifier)
            self._step(_ARROWS[key] * step, resizes=resizes)
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._from = event.position().toPoint()
            self._select(QRect(self._from, QSize()))
        else:
            self.cancelled.emit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._from is not None:
            here = event.position().toPoint()
            left, right = sorted((self._from.x(), here.x()))
            top, bottom = sorted((self._from.y(), here.y()))
            self._select(QRect(left, top, right - left, bottom - top) & self.rect())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._from is None or event.button() is not Qt.MouseButton.LeftButton:
            return
        self._from = None
        if min(self.selection.width(), self.selection.height()) >= _LEAST:
            self._take(self.pixels())
        else:
            self._select(QRect())

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Enter and not self.isActiveWindow():
            self.activateWindow()  # the keys are for the screen with the pointer
        elif event.type() is QEvent.Type.Close and event.spontaneous():
            self.cancelled.emit()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.words.setVisible(self.hint.sizeHint().width() < self.width() - 32)
        self.hint.adjustSize()
        self.hint.move((self.width() - self.hint.width()) // 2, 24)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, area = QPainter(self), self.rect()
        painter.drawPixmap(area, self.pixmap, self.pixmap.rect())
        chosen = self.selection
        painter.setClipRegion(QRegion(area) - QRegion(chosen))
        painter.fillRect(area, _SCRIM)
        painter.setClipping(False)
        if not chosen.isEmpty():
            self._paint_frame(painter, QRectF(chosen))
        painter.end()

    def _paint_frame(self, painter: QPainter, rect: QRectF) -> None:
        """A white line with a dark one around it, which are seen on every picture, and the size."""
        for color, width in ((_DARK, 4.0), (_LIGHT, 2.0)):
            pen = QPen(color, width)
            pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
            painter.setPen(pen)
            painter.drawRect(rect)
        painter.setFont(font(SMALL))
        words = self._words()
        room = painter.fontMetrics().boundingRect(words).adjusted(-8, -4, 8, 4)
        place = QRectF(rect.left(), rect.bottom() + 8, room.width(), room.height())
        if place.bottom() > self.height():  # no room below: inside
            place.moveBottom(rect.bottom() - 8)
            place.moveLeft(rect.left() + 8)
        place.moveLeft(min(place.left(), self.width() - place.width()))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(_DARK)
        painter.drawRoundedRect(place, 6, 6)
        painter.setPen(_LIGHT)
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, words)
