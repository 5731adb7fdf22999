"""The conversation: one view that lays out only what changed and draws only what is seen.

It owns messages made of small blocks, finds the visible ones by their places, and reads again only
the unfinished end of a streaming answer; so the cost of a token does not grow with the answer or
the conversation. It stays at the end while it is there, and otherwise where the reader is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QMenu, QToolTip, QWidget

from app.store.store import Message, MessageState
from app.ui.blocks.code import CodeView
from app.ui.blocks.style import ReadingStyle
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import COLUMN_WIDTH
from app.ui.transcript import message_paint
from app.ui.transcript.access import Messages, TranscriptAccess
from app.ui.transcript.editing import Editing
from app.ui.transcript.keys import Keys
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message_stack import MessageStack
from app.ui.transcript.pointer import Pointer
from app.ui.transcript.scroll import Scroller
from app.ui.transcript.tools import Tools
from app.ui.transcript.updates import Updates
from app.ui.widgets import accessibility
from engine import Role

MARGIN = 24  # pixels left and right of the column, as the composer has them
SLICE = 0.008  # seconds of layout between two events
SETTLE = 0.06  # seconds between two corrections of the scroll bar meanwhile
_RESIZED = 120  # milliseconds after the last change of size


class Transcript(QAbstractScrollArea):
    """Shows the messages of one conversation."""

    regenerate_requested = Signal(int)  # message
    edit_submitted = Signal(int, str)  # message, new text
    continue_requested = Signal(int)  # message
    compare_requested = Signal(int)  # message, to be answered again without adapters
    adapters_requested = Signal()  # the leaf of a message was used
    sibling_requested = Signal(int, int)  # message, -1 or +1
    link_activated = Signal(str)  # address
    at_end_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        style = ReadingStyle(LIGHT)
        self.stack = MessageStack(style, self._highlight_later)
        self.scroller = Scroller(
            self.verticalScrollBar(),
            self.viewport(),
            self.stack,
            self._moved,
            self.at_end_changed.emit,
        )
        self.places = TranscriptLayout(style, self.stack, self.scroller, self)
        self.selection = self.places.selection
        self.editing = Editing(
            self.viewport(),
            self.stack,
            lambda: (self.places.column_left(), self.places.offset()),
            self._height_changed,
            self.edit_submitted.emit,
            self.setFocus,
        )
        self.tools = Tools(self.places)
        self.keys = Keys(self.places, self.tools)
        self.pointer = Pointer(self.places, self.tools)
        self.access = Messages(
            self,
            self.places,
            self.tools,
            self.link_activated.emit,
            lambda: self.editing.editor,
        )
        self._updates = Updates(self, self._show_text)
        self._settled = 0.0
        self._awaiting_highlight: list[CodeView] = []
        self._idle = QTimer(self)
        self._idle.setSingleShot(True)
        self._idle.timeout.connect(self._work_some)
        self._connect()
        self._set_up()

    def _connect(self) -> None:
        places, tools, keys, pointer = self.places, self.tools, self.keys, self.pointer
        places.message_changed.connect(self._redraw_message)
        places.hover_changed.connect(self._redraw_hover)
        places.changed.connect(lambda: self.viewport().update())
        tools.regenerate_requested.connect(self.regenerate_requested)
        tools.edit_requested.connect(self.edit_message)
        tools.continue_requested.connect(self.continue_requested)
        tools.compare_requested.connect(self.compare_requested)
        tools.adapters_requested.connect(self.adapters_requested)
        tools.sibling_requested.connect(self.sibling_requested)
        keys.copy_requested.connect(self.copy)
        keys.select_all_requested.connect(self.select_all)
        keys.moved.connect(self.access.focus)
        pointer.link_activated.connect(self.link_activated)
        pointer.shape_changed.connect(self._show_shape)

    def _set_up(self) -> None:
        accessibility.register(Transcript, lambda view: TranscriptAccess(view.access))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Conversation")
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.viewport().setMouseTracking(True)
        self.verticalScrollBar().setSingleStep(24)
        self.places.width = self.width()

    # --- messages ---------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """Whether the end of the conversation is in sight."""
        return self.scroller.at_end

    @property
    def working(self) -> bool:
        """Whether messages out of sight are still being laid out."""
        return self._idle.isActive()

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Show a conversation, from its end; where its beginning is shown already, stay there."""
        self._updates.flush()
        self.editing.end()
        kept = self.stack.set(messages)
        self.selection.forget_from(kept)
        self.keys.forget()
        self.scroller.follow = self.scroller.follow or kept == 0
        self._settle_all()
        self.access.changed()
        self._idle.start(0)

    def append_message(self, message: Message) -> None:
        """Put a message under the others; an own one brings the end into sight."""
        self._updates.flush()
        self.stack.append(message)
        if message.role is Role.USER:
            self.scroller.follow = True
        self._settle_all()
        self.access.changed()

    def append_text(self, message_id: int, text: str) -> None:
        """Add text to a streaming answer; shown now, or as soon as there is time for it."""
        self._updates.add(message_id, text)

    def _show_text(self, message_id: int, text: str) -> None:
        index = self.stack.index_of(message_id)
        if index is None:
            return
        view = self.stack.views[index]
        view.note = ""
        height = view.height
        view.append(text)
        if self.stack.is_built(index):
            if view.height != height:
                self._height_changed(index)
            self._redraw(index, view.changed_from)

    def update_message(self, message: Message) -> None:
        """Show a message in its new state."""
        self._updates.flush()
        index = self.stack.index_of(message.id)
        if index is None:
            return
        view = self.stack.views[index]
        if message.state is not MessageState.STREAMING:
            view.note = ""
        view.update(message)
        self._height_changed(index)
        self._redraw(index, -30.0)

    def remove_message(self, message_id: int) -> None:
        """Take a message away."""
        self._updates.flush()
        if message_id == self.editing.message_id:
            self.editing.end()
        index = self.stack.remove(message_id)
        if index is not None:
            self.selection.forget_from(index)
            self.keys.forget()
            self._settle_all()
            self.access.changed()

    def set_waiting(self, message_id: int, note: str) -> None:
        """Say in place of an empty answer what it waits for."""
        index = self.stack.index_of(message_id)
        if index is not None and self.stack.views[index].note != note:
            self.stack.views[index].note = note
            self._redraw_message(index)

    def set_busy(self, busy: bool) -> None:
        """While an answer is made, offer nothing that would begin another."""
        if busy != self.tools.busy:
            self.tools.busy = busy
            if busy:
                self.editing.end()
            self.viewport().update()

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        places = self.places
        if palette == places.style.palette:
            return
        anchor = self.scroller.anchor()
        places.style = ReadingStyle(palette)
        self.stack.restyle(places.style)
        self._awaiting_highlight.clear()
        if self.editing.editor:
            self.editing.editor.apply_style(self.places.style)
            self.editing.fit()
        self.scroller.settle(anchor)
        self.viewport().update()
        self._idle.start(0)

    # --- tools ------------------------------------------------------------------------------

    def edit_message(self, message_id: int) -> None:
        """Edit an own message in its place."""
        index = self.stack.index_of(message_id)
        if index is None or self.tools.busy or not self.stack.views[index].own:
            return
        self.editing.end()
        self.scroller.follow = False
        self.editing.begin(index, self.places.style)
        top = self.places.message_top(index)
        if top < 0 or top + self.stack.views[index].height > self.viewport().height():
            self.scroller.scroll_to(self.stack.top(index) - 24)
        self.viewport().update()

    # --- copying ----------------------------------------------------------------------------

    def select_all(self) -> None:
        """Select the whole conversation."""
        while self.stack.build_some(1.0):
            pass
        self._settle_all()
        if self.stack.views:
            last = self.stack.views[-1]
            part = max(len(last.parts) - 1, 0)
            end = last.parts[part].view.length if last.parts else 0
            self.selection.set((0, 0, 0), (len(self.stack) - 1, part, end))

    def copy(self) -> None:
        """Copy what is selected: Markdown for whole blocks, plain text for parts, and HTML."""
        if not self.selection.empty:
            views = self.stack.views
            self.tools.copy(self.selection.text(views), self.selection.html(views))

    # --- scrolling and layout ---------------------------------------------------------------

    def jump_to_end(self) -> None:
        """Bring the end into sight and follow it."""
        self.places.jump_to_end()

    def _settle_all(self) -> None:
        self.scroller.settle()
        self.viewport().update()

    def _height_changed(self, index: int) -> None:
        self.stack.refresh(index)
        below = self.places.message_top(index)
        self.scroller.settle()
        if index < len(self.stack) - 1:
            self.viewport().update(0, max(round(below), 0), self.width(), self.height())

    def _moved(self, dy: int, everything: bool) -> None:
        """Move what is drawn, or draw it again."""
        if everything or abs(dy) >= self.viewport().height():
            self.viewport().update()
        elif dy:
            self.viewport().scroll(0, dy)
        self.editing.move()
        self.pointer.scrolled()

    def _work_some(self) -> None:
        """Lay out and colour what there is time for; again after the next events, if any is left."""
        if self.verticalScrollBar().isSliderDown():
            self._idle.start(100)
            return
        until = time.perf_counter() + SLICE
        more = self.stack.build_some(SLICE)
        if not more or until - self._settled > SETTLE:
            self._settled = until
            self.scroller.settle()
        ready = [code for code in self._awaiting_highlight if code.lexer_ready]
        while ready and time.perf_counter() < until:
            if not ready[0].highlight_some(lambda: time.perf_counter() < until):
                self._awaiting_highlight.remove(ready.pop(0))
                self.viewport().update()
        if more or self._awaiting_highlight:
            self._idle.start(0 if more or ready else 20)

    def _highlight_later(self, code: CodeView) -> None:
        self._awaiting_highlight.append(code)
        if not self._idle.isActive():
            self._idle.start(0)

    def resizeEvent(self, arg__1: QResizeEvent) -> None:
        anchor = self.scroller.anchor()
        self.places.width = self.width()
        self.stack.set_column(max(min(COLUMN_WIDTH, self.width() - 2 * MARGIN), 160))
        self.scroller.settle(anchor)
        self.editing.fit()
        self.viewport().update()
        self._idle.start(_RESIZED)

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.scroller.scrolled(dy)

    # --- painting ---------------------------------------------------------------------------

    def _redraw_message(self, index: int) -> None:
        """Draw a message again."""
        self._redraw(index, -30.0)

    def _redraw_hover(self, index: int) -> None:
        """Draw again what of a message depends on where the mouse is."""
        view = self.stack.views[index]
        self._redraw(index, view.tools_top)
        for top, bottom in view.hover_bands():
            self._redraw(index, top, bottom)

    def _redraw(self, index: int, top: float, bottom: float | None = None) -> None:
        if index >= len(self.stack):
            return
        y = self.places.message_top(index)
        end = self.stack.views[index].height if bottom is None else bottom
        area = QRect(0, round(y + top) - 2, self.width(), round(end - top) + 4)
        self.viewport().update(area & self.viewport().rect())

    def paintEvent(self, arg__1: QPaintEvent) -> None:
        began = time.perf_counter()
        painter = QPainter(self.viewport())
        try:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            clip = QRectF(arg__1.rect())
            painter.setClipRect(clip)
            painter.fillRect(clip, self.places.style.paper)
            top = clip.top() + self.places.offset()
            for index in self.stack.between(top, top + clip.height()):
                self._paint_message(painter, index, clip)
        finally:
            painter.end()
        self._updates.drawn(time.perf_counter() - began)

    def _paint_message(self, painter: QPainter, index: int, clip: QRectF) -> None:
        view = self.stack.views[index]
        if not view.built:
            return
        tools, areas = self.tools.shown(index)
        mouse = self.pointer.point
        focused = self.hasFocus() and index == self.places.focused
        shown = message_paint.Shown(
            tools,
            areas,
            self.selection.in_message(index, view),
            self.places.local(index, mouse) if mouse is not None else None,
            self.keys.tool if focused else -2,
            self.tools.done(view.message.id),
        )
        at = QPointF(self.places.column_left(), self.places.message_top(index))
        message_paint.paint(painter, view, self.places.style, at, clip, shown)

    # --- events -----------------------------------------------------------------------------

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Leave:
            self.pointer.moved(None)
        elif isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            tip = self.pointer.tip(QPointF(event.pos()))
            if tip:
                QToolTip.showText(event.globalPos(), tip, self.viewport())
            else:
                QToolTip.hideText()
            return True
        return super().viewportEvent(event)

    def _show_shape(self, shape: Qt.CursorShape) -> None:
        self.viewport().setCursor(shape)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.pointer.drag(event.position())
        else:
            self.pointer.moved(event.position())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self.keys.forget()
            self.pointer.press(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self.pointer.release(event.position())

    def wheelEvent(self, arg__1: QWheelEvent) -> None:
        if not self.pointer.wheel(arg__1):
            pixels = arg__1.pixelDelta().y()
            self.scroller.scroll_to(
                self.places.offset() - (pixels or arg__1.angleDelta().y() * 0.6)
            )
        arg__1.accept()

    def contextMenuEvent(self, arg__1: QContextMenuEvent) -> None:
        point = QPointF(arg__1.pos())
        index = self.stack.at(point.y() + self.places.offset())
        self._open_menu(index, self.pointer.target(point).link, arg__1.globalPos())

    def _open_menu(self, index: int, link: str, at: QPoint) -> None:
        """Open the menu of a message; index -1: of none."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("Copy", self.copy).setEnabled(not self.selection.empty)
        if link:
            menu.addAction("Copy link address", lambda: self.tools.copy(link))
        if index >= 0:
            text = self.stack.views[index].message.text
            menu.addAction("Copy message", lambda: self.tools.copy(text)).setEnabled(bool(text))
        menu.addSeparator()
        menu.addAction("Select all", self.select_all)
        menu.popup(at)

    def keyPressEvent(self, arg__1: QKeyEvent) -> None:
        if not self.keys.press(arg__1):
            arg__1.ignore()

    def focusNextPrevChild(self, next: bool) -> bool:
        if self.hasFocus() and self.keys.step(forward=next):
            return True
        return super().focusNextPrevChild(next)

    def focusInEvent(self, arg__1: QFocusEvent) -> None:
        reasons = Qt.FocusReason
        if arg__1.reason() in (reasons.TabFocusReason, reasons.BacktabFocusReason):
            self.keys.enter(backwards=arg__1.reason() is reasons.BacktabFocusReason)
        self.viewport().update()
        super().focusInEvent(arg__1)

    def focusOutEvent(self, arg__1: QFocusEvent) -> None:
        self.keys.forget()
        self.viewport().update()
        super().focusOutEvent(arg__1)
