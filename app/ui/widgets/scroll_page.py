"""Page of the window whose content scrolls, below a head with buttons."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.ui.theme.palette import Palette, follow_palette
from app.ui.widgets.controls import Column, page_head
from app.ui.widgets.page import Page

_NARROW = 560  # pixels: in a narrower page the fields are below their text
_MARGIN = 48  # pixels around a focused part


class ScrollPage(Page):
    """Scrolls by keys and to what has the focus; nothing typed on it reaches the composer."""

    opened = Signal()  # the page was shown

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # it cannot show the focus of Tab
        follow_palette(self._recolor)

    def lay_out(self, page: QWidget, *buttons: QWidget) -> QVBoxLayout:
        """Fill `page` with the head and the scrolled rows; returns the layout of the rows.

        Parents are added before children: reparenting a widget restyles all of its descendants.
        """
        self.view = QScrollArea(page)
        self.view.setFrameShape(QFrame.Shape.NoFrame)
        self.view.setWidgetResizable(True)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        parts = QVBoxLayout(page)
        parts.setContentsMargins(0, 0, 0, 0)
        parts.setSpacing(0)
        parts.addWidget(page_head(self.accessibleName(), *buttons, self.close_button))
        parts.addWidget(self.view, 1)
        content = QWidget()
        self.column = Column(content)
        self.column.setObjectName("rows")
        self.column.setMinimumWidth(1)  # the viewport sets the width, also before the first show
        self.view.setWidget(self.column)
        rows = QVBoxLayout(content)
        rows.setContentsMargins(0, 0, 0, 24)
        rows.setSpacing(0)
        return rows

    def follow_focus(self) -> None:
        """Scroll to any part of the page that takes the focus; call it once the page is filled."""
        for stop in self.findChildren(QWidget):
            if stop.focusPolicy() & Qt.FocusPolicy.TabFocus:
                stop.installEventFilter(self)

    def _recolor(self, palette: Palette) -> None:
        self.setStyleSheet(self._style(palette))

    # --- for pages ------------------------------------------------------------------------------

    def _style(self, p: Palette) -> str:
        """The style sheet of the page, for one palette."""
        line = 2 if p.hairline == p.text else 1
        return f"""
QScrollArea, QWidget#rows {{ background: {p.background}; border: none; }}
QFrame#area, QFrame#news {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QFrame#area[focused="true"] {{ border-color: {p.accent}; }}
QLineEdit[wrong="true"], QLineEdit[wrong="true"]:focus {{ border-color: {p.danger}; }}
"""

    def _set_narrow(self, narrow: bool) -> None:
        """Place fields below their text (narrow) or beside it."""

    def _leave(self) -> None:
        """Escape was pressed."""
        self.closed.emit()

    # --- Qt -------------------------------------------------------------------------------------

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        is_focused = event.type() == QEvent.Type.FocusIn and isinstance(watched, QWidget)
        if is_focused and self.column.isAncestorOf(watched):  # type: ignore[arg-type]
            self.view.ensureWidgetVisible(watched, 0, _MARGIN)  # type: ignore[arg-type]
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.view.verticalScrollBar()
        actions = {
            Qt.Key.Key_Up: bar.SliderAction.SliderSingleStepSub,
            Qt.Key.Key_Down: bar.SliderAction.SliderSingleStepAdd,
            Qt.Key.Key_PageUp: bar.SliderAction.SliderPageStepSub,
            Qt.Key.Key_PageDown: bar.SliderAction.SliderPageStepAdd,
            Qt.Key.Key_Home: bar.SliderAction.SliderToMinimum,
            Qt.Key.Key_End: bar.SliderAction.SliderToMaximum,
        }
        if event.key() == Qt.Key.Key_Escape:
            self._leave()
        elif event.key() in actions:
            bar.triggerAction(actions[Qt.Key(event.key())])
        event.accept()  # nothing typed here reaches the composer

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._set_narrow(self.width() < _NARROW)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not event.spontaneous():
            self.setFocus(Qt.FocusReason.OtherFocusReason)
            self.view.verticalScrollBar().setValue(0)
            self.opened.emit()
