"""Panel of a chat: slides in from the end side, docked beside the conversation or as an overlay.

`ChatPanel` is only the spacer in the window's layout. The visible part is a `Sheet`, a direct
child of the window, so that it can overlap the conversation when the window is narrow. The sheet
and its content are made when the panel is first opened.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QMoveEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QSizePolicy, QVBoxLayout, QWidget

from app.domain.chat_settings import AnswerFormat
from app.state.states import States
from app.ui.widgets.controls import set_margins

if TYPE_CHECKING:
    from app.ui.panel.adapters import AdapterSection
    from app.ui.panel.content import PanelContent
    from app.ui.panel.sheet import Sheet

PANEL_WIDTH = 336
_PAGE_WIDTH = 480  # pixels: the conversation's minimum width with the panel docked


class ChatPanel(QWidget):
    """Opens and closes the settings of the shown chat."""

    opened = Signal()
    closed = Signal()
    made = Signal(object)  # its PanelContent, to be connected
    changed = Signal(object)  # ChatSettings of the shown chat
    left = Signal(object, object)  # a chat that was shown before, and its ChatSettings

    def __init__(self, states: States, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.states = states
        self._available: int | None = None
        self._focus_before: QWidget | None = None
        self._made: tuple[Sheet, PanelContent] | None = None
        self._part = ""  # where it was opened
        self.is_open = False
        self.setFixedWidth(0)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        states.chat.capabilities_changed.connect(self._show_capabilities)

    def _make(self) -> tuple[Sheet, PanelContent]:
        if self._made is None:
            from app.ui.panel.content import PanelContent
            from app.ui.panel.sheet import Sheet

            sheet, content = Sheet(self.window()), PanelContent(self.states)
            sheet.hide()
            layout = QVBoxLayout(sheet)
            set_margins(layout, 1, 0, 0, 0)
            layout.addWidget(content)
            self._made = sheet, content
            sheet.dropped.connect(content.adapters.added)
            sheet.escaped.connect(self.close_panel)
            content.closed.connect(self.close_panel)
            content.changed.connect(self.changed)
            content.left.connect(self.left)
            self._show_capabilities()
            self.made.emit(content)
        return self._made

    # --- called by the window -------------------------------------------------------------------

    @property
    def sheet(self) -> Sheet:
        """The visible part."""
        return self._make()[0]

    @property
    def content(self) -> PanelContent:
        """The sections."""
        return self._make()[1]

    @property
    def adapters(self) -> AdapterSection:
        """The section of the adapters."""
        return self.content.adapters

    def open(self, part: str = "") -> None:
        """Slide in and take the keyboard focus, at a section: a key of `PARTS`, or the first."""
        was_open = self.is_open
        self._part = part
        if not was_open:
            self.is_open = True
            self._focus_before = QApplication.focusWidget()
            self.sheet.show()
            self.sheet.raise_()
            self._update_docked_width()
            self.sheet.slide(
                self._closed_position(),
                self._open_position(),
                partial(self._finish_slide, hide=False),
            )
            self.sheet.setFocus(Qt.FocusReason.OtherFocusReason)
            self.opened.emit()
        QTimer.singleShot(0, self, partial(self.content.reveal, part))  # once it is laid out

    def close_panel(self) -> None:
        """Slide out and restore the previous keyboard focus."""
        if not self.is_open:
            return
        self.is_open = False
        self.content.finish()
        inside = self.sheet.isAncestorOf(QApplication.focusWidget() or self)
        focused = inside or self.sheet.hasFocus()
        before, self._focus_before = self._focus_before, None
        if focused and before is not None and before.isVisible():
            before.setFocus(Qt.FocusReason.OtherFocusReason)
        self.sheet.slide(
            self._open_position(), self._closed_position(), partial(self._finish_slide, hide=True)
        )
        self._update_docked_width()
        self.closed.emit()

    def toggle(self, part: str = "") -> None:
        """Open the panel at a section, or close it if it was opened there."""
        if self.is_open and part in ("", self._part):
            self.close_panel()
        else:
            self.open(part)

    def finish(self) -> None:
        """Emit what is typed but not committed."""
        if self._made is not None:
            self.content.finish()

    def clear_format(self) -> None:
        """Let answers be any text again."""
        self.changed.emit(self.states.chat_settings.settings.with_format(AnswerFormat.FREE))

    def set_available_width(self, width: int) -> None:
        """Set the width shared by the conversation and the panel, in pixels."""
        if width != self._available:
            self._available = width
            self._update_docked_width()

    def _show_capabilities(self) -> None:
        if self._made is not None:
            self.sheet.setAcceptDrops(self.states.chat.capabilities.adapters)

    # --- geometry -------------------------------------------------------------------------------

    def _update_docked_width(self) -> None:
        """Reserve the panel's width in the layout if the window is wide enough, else none."""
        width = self.window().width() if self._available is None else self._available
        alone = self.window() is self
        docked = self.is_open and (alone or width >= PANEL_WIDTH + _PAGE_WIDTH)
        self.setFixedWidth(PANEL_WIDTH if docked else 0)
        parent = self.parentWidget()
        layout = parent.layout() if parent else None
        if layout is not None:
            layout.activate()
        self._place_sheet()

    def _open_position(self) -> QPoint:
        """The top-left corner of the open sheet, in window coordinates."""
        corner = self.mapTo(self.window(), QPoint(0, 0))
        mirrored = self.layoutDirection() is Qt.LayoutDirection.RightToLeft
        return corner if mirrored else corner + QPoint(self.width() - self.sheet.width(), 0)

    def _closed_position(self) -> QPoint:
        mirrored = self.layoutDirection() is Qt.LayoutDirection.RightToLeft
        away = -PANEL_WIDTH if mirrored else PANEL_WIDTH
        return self._open_position() + QPoint(away, 0)

    def _place_sheet(self) -> None:
        """Resize the sheet and move it, or its running animation, to the open position."""
        if self._made is None:
            return
        self.sheet.resize(min(PANEL_WIDTH, self.window().width()), self.height())
        if self.is_open:
            self.sheet.move_to(self._open_position())

    def _finish_slide(self, *, hide: bool) -> None:
        if hide:
            self.sheet.hide()
        else:
            self._place_sheet()

    def moveEvent(self, event: QMoveEvent) -> None:
        super().moveEvent(event)
        self._place_sheet()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_sheet()
