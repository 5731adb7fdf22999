"""Popover: a modal card over the window that closes with Esc or a click outside.

It is a child widget rather than a top-level window, so that it looks and behaves the same on every
platform.
"""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAccessible, QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QApplication, QScrollArea, QVBoxLayout, QWidget

from app.ui.theme.palette import shown_palette
from app.ui.theme.theme import RADIUS_CARD
from app.ui.widgets import accessibility
from app.ui.widgets.controls import fade_in

_SHADOW = 16  # pixels
_WINDOW_MARGIN = 8  # pixels: minimum distance from the window's edge


class Popover(QWidget):
    """Transparent overlay that covers the window and shows `content` in a card."""

    closed = Signal()

    def __init__(self, window: QWidget, content: QWidget, width: int, name: str) -> None:
        """`name` is the accessible name of the card."""
        super().__init__(window)
        accessibility.register_role(Popover, QAccessible.Role.Dialog)
        accessibility.register_role(type(content), QAccessible.Role.Pane)
        self.setAccessibleName(name)
        content.setAccessibleName(name)
        self._over = window
        self.content = content
        self._focus_before: QWidget | None = None
        self._corner = QPoint()
        content.setParent(self)
        self._width = width
        content.setFixedWidth(width)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.hide()

    def open_below(self, anchor: QWidget) -> None:
        """Show the card below the beginning of `anchor`."""
        beside = anchor.width() - self._width if QApplication.isRightToLeft() else 0
        below = anchor.mapTo(self._over, QPoint(beside, anchor.height() + 6))
        self._open(below)

    def open_centred(self) -> None:
        """Show the card in the centre of the window."""
        self._open(self._centred())

    def centre(self) -> None:
        """Move the card, which is shown, to the centre of the window, at its new size."""
        self._corner = self._centred()
        self.fit()

    def _centred(self) -> QPoint:
        size, window = self._card_size(), self._over.size()
        return QPoint((window.width() - size.width()) // 2, (window.height() - size.height()) // 2)

    def fit(self) -> None:
        """Recompute the card's geometry after its content or the window changed size."""
        window = self._over.rect()
        self.setGeometry(window)
        size = self._card_size()
        x = max(
            _WINDOW_MARGIN, min(self._corner.x(), window.width() - size.width() - _WINDOW_MARGIN)
        )
        y = max(
            _WINDOW_MARGIN, min(self._corner.y(), window.height() - size.height() - _WINDOW_MARGIN)
        )
        self.content.setGeometry(x, y, size.width(), size.height())
        self.update()

    def close_card(self) -> None:
        """Hide the card and restore the previous keyboard focus."""
        if self.isHidden():
            return
        self.hide()
        before = self._focus_before
        self._focus_before = None
        if before is not None and before.isVisible():
            before.setFocus(Qt.FocusReason.PopupFocusReason)
        self.closed.emit()

    def _card_size(self) -> QSize:
        self.content.ensurePolished()
        layout = self.content.layout()
        if isinstance(layout, QVBoxLayout):
            layout.activate()
        width = min(self._width, self._over.width() - 2 * _WINDOW_MARGIN)
        self.content.setFixedWidth(width)
        flows = self.content.hasHeightForWidth()
        height = self.content.heightForWidth(width) if flows else self.content.sizeHint().height()
        return QSize(width, min(height, self._over.height() - 2 * _WINDOW_MARGIN))

    def _open(self, corner: QPoint) -> None:
        self._corner = corner
        if self.isHidden():
            # Of the window, which may be behind a dialog that is about to close.
            self._focus_before = self._over.window().focusWidget()
        self.show()
        self.raise_()
        self.fit()
        for area in (self.content, *self.content.findChildren(QScrollArea)):
            if isinstance(area, QScrollArea):
                area.verticalScrollBar().setValue(0)
        self.content.setFocus(Qt.FocusReason.PopupFocusReason)
        if not self.isAncestorOf(self._over.window().focusWidget() or self._over):
            self.setFocus(Qt.FocusReason.PopupFocusReason)  # the content has nothing to focus
        fade_in(self)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if not self.content.geometry().contains(event.position().toPoint()):
            self.close_card()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_card()
        event.accept()  # modal: keys do not reach the window below

    def focusNextPrevChild(self, next: bool) -> bool:
        """Cycle Tab through the card only: the widgets below it cannot take the focus."""
        tab = Qt.FocusPolicy.TabFocus
        stops = [
            widget
            for widget in self.content.findChildren(QWidget)
            if widget.isVisible() and widget.isEnabled() and widget.focusPolicy() & tab == tab
        ]
        if stops:
            current = QApplication.focusWidget()
            at = stops.index(current) if current in stops else -1
            place = at + 1 if next else (at if at >= 0 else 0) - 1
            stops[place % len(stops)].setFocus(Qt.FocusReason.TabFocusReason)
        return True

    def paintEvent(self, event: QPaintEvent) -> None:
        palette = shown_palette()
        card = QRectF(self.content.geometry())
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        for step in range(_SHADOW, 0, -1):  # overlapping layers: the shadow fades outwards
            painter.setBrush(QColor(0, 0, 0, 5 if palette.dark else 2))
            grown = card.adjusted(-step, -step + 4, step, step + 4)
            painter.drawRoundedRect(grown, RADIUS_CARD + step, RADIUS_CARD + step)
        line = 2.0 if palette.hairline == palette.text else 1.0
        painter.setPen(QPen(QColor(palette.hairline), line))
        painter.setBrush(QColor(palette.surface))
        inset = line / 2
        painter.drawRoundedRect(
            card.adjusted(inset, inset, -inset, -inset), RADIUS_CARD, RADIUS_CARD
        )
        painter.end()
