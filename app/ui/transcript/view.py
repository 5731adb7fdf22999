"""Transcript widget: incremental layout and viewport-only painting of a conversation.

Messages consist of block views. Binary search finds the visible ones, and only the unfinished tail
of a streaming answer is parsed again, so the cost of a token does not grow with the answer or the
conversation. At the end the view follows new text; elsewhere it keeps a scroll anchor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QMenu, QToolTip, QWidget

from app.domain.generation_settings import GenerationSettings
from app.domain.message import AnswerAgain, Message, MessageState
from app.domain.parts import clipboard_text
from app.domain.tool_files import shown_pictures
from app.domain.tool_words import call_text
from app.markdown.blocks import passage_number
from app.system.translation import tr
from app.ui.blocks.style import ReadingStyle
from app.ui.pictures.thumbnails import Thumbnails
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import COLUMN_WIDTH
from app.ui.transcript import context_menu
from app.ui.transcript.access import AccessibleMessages, AccessibleTranscript
from app.ui.transcript.calls import Calls
from app.ui.transcript.editing import Editing
from app.ui.transcript.find import Finder
from app.ui.transcript.formulas import FormulaUpdates
from app.ui.transcript.idle import IdleLayout
from app.ui.transcript.keys import Keys
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message.controls import Controls
from app.ui.transcript.message.instructions import ID
from app.ui.transcript.message.message_stack import MessageListLayout
from app.ui.transcript.paint import ViewPainter
from app.ui.transcript.pointer import Pointer
from app.ui.transcript.scroll import Scroller
from app.ui.transcript.tools import Tools
from app.ui.transcript.updates import Updates
from app.ui.widgets import accessibility
from app.ui.widgets.menus import new_menu, popup_below
from engine import Role

MARGIN = 24  # pixels left and right of the column, as in the composer
_WIDEST_TIP = 90  # characters in a line of a tooltip
_RESIZE_MILLISECONDS = 120  # milliseconds from the last resize to idle layout


class Transcript(QAbstractScrollArea):
    """Scroll area that shows the messages of one conversation."""

    regenerate_requested = Signal(object, object)  # message, AnswerAgain
    save_requested = Signal(object)  # message, whose sections are a document
    marks_requested = Signal(object)  # answer, whose boxes are to be shown on its picture
    fork_requested = Signal(object)  # message, up to which the chat is copied
    edit_submitted = Signal(object, object)  # message, new parts
    instructions_requested = Signal()  # edit the instructions of the chat
    continue_requested = Signal(object)  # message
    delete_requested = Signal(object)  # message
    details_requested = Signal(object)  # message
    compare_requested = Signal(object)  # message, whose question is to be answered twice
    keep_requested = Signal(object)  # message, one of two compared answers
    stop_requested = Signal(object)  # message, an answer being written
    reopen_requested = Signal(object)  # message, whose comparison is shown again
    speech_requested = Signal(object)  # id of a message: read it aloud, or stop reading it
    adapters_requested = Signal()  # the adapter icon of a message was clicked
    sibling_requested = Signal(object, int)  # message, -1 or +1
    file_opened = Signal(object)  # FilePart, whose text is to be shown
    image_opened = Signal(object)  # ImagePart, which is to be shown
    folder_requested = Signal(object)  # Path of a file, to be shown in its folder
    link_activated = Signal(str)  # address
    passage_opened = Signal(object)  # Passage, whose document is to be shown
    pin_requested = Signal(int, bool)  # number of a passage: read it with later questions, or not
    strike_requested = Signal(object, int)  # question, number of a passage: leave it out, or not
    passages_changed = Signal(object, object)  # question, PassagesPart to answer it with again
    more_passages_requested = Signal(object)  # question
    no_passages_requested = Signal(object)  # answer, to be written without passages
    decided = Signal(object, str, object, str)  # message, call, Consent, the arguments
    stop_call = Signal(object, str)  # message, call
    answer_again_from = Signal(object, str)  # message, call
    activity_requested = Signal()  # show all calls of tools
    kept_file_requested = Signal(object)  # KeptFile, which is to be saved
    zoom_requested = Signal(int)  # steps, by Ctrl and the wheel
    at_end_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        style = ReadingStyle(shown_palette())
        self.stack = MessageListLayout(style, lambda code: self._idle.highlight(code))
        self.scroller = Scroller(
            self.verticalScrollBar(),
            self.viewport(),
            self.stack,
            self._moved,
            self.at_end_changed.emit,
        )
        self._instructions: Message | None = None
        self.message_layout = TranscriptLayout(style, self.stack, self.scroller, self)
        self.selection = self.message_layout.selection
        self.thumbnails = Thumbnails(self)
        self.editing = Editing(
            self.viewport(),
            self.stack,
            lambda: (self.message_layout.column_left(), self.message_layout.offset()),
            self._height_changed,
            self.setFocus,
            self.thumbnails,
        )
        self.tools = Tools(self.message_layout)
        self.calls = Calls(
            self.viewport(), self.message_layout, self._height_changed, self.setFocus
        )
        controls = Controls(self.message_layout, self.tools)
        self.keys = Keys(self.message_layout, controls)
        self.pointer = Pointer(self.message_layout, self.tools)
        self.access = AccessibleMessages(
            self,
            self.message_layout,
            controls,
            lambda: [
                *filter(None, [self.editing.editor]),
                *(card for card in self.calls.consents.values() if card.isVisible()),
            ],
        )
        self.finder = Finder(self.message_layout)
        self._painter = ViewPainter(
            self.message_layout, self.tools, self.keys, self.pointer, self.finder, self.thumbnails
        )
        self._updates = Updates(self, self._show_text)
        self.formulas = FormulaUpdates(self, self.stack, self.scroller, self._repaint_below)
        self._idle = IdleLayout(self.scroller, self.stack, self.formulas, self)
        self._idle.highlighted.connect(self.viewport().update)
        self._connect()
        self._set_up()
        follow_palette(self._recolor)

    def _connect(self) -> None:
        layout, tools, keys, pointer = self.message_layout, self.tools, self.keys, self.pointer
        layout.message_changed.connect(self._repaint_message)
        layout.hover_changed.connect(self._repaint_hover)
        layout.changed.connect(lambda: self.viewport().update())
        layout.file_opened.connect(self.file_opened)
        layout.image_opened.connect(self.image_opened)
        self.thumbnails.changed.connect(self._repaint_thumbnails)
        self.editing.submitted.connect(self.edit_submitted)
        tools.regenerate_requested.connect(self.regenerate_requested)
        tools.variants_requested.connect(self._open_variants)
        tools.save_requested.connect(self.save_requested)
        tools.marks_requested.connect(self.marks_requested)
        tools.fork_requested.connect(self.fork_requested)
        tools.edit_requested.connect(self.edit_message)
        tools.instructions_requested.connect(self.instructions_requested)
        tools.continue_requested.connect(self.continue_requested)
        tools.delete_requested.connect(self.delete_requested)
        tools.details_requested.connect(self.details_requested)
        tools.speech_requested.connect(self.speech_requested)
        tools.compare_requested.connect(self.compare_requested)
        tools.keep_requested.connect(self.keep_requested)
        tools.stop_requested.connect(self.stop_requested)
        tools.reopen_requested.connect(self.reopen_requested)
        tools.adapters_requested.connect(self.adapters_requested)
        tools.sibling_requested.connect(self.sibling_requested)
        keys.copy_requested.connect(self.copy)
        keys.select_all_requested.connect(self.select_all)
        keys.moved.connect(self.access.focus)
        layout.link_activated.connect(self.link_activated)
        layout.passage_opened.connect(self.passage_opened)
        tools.pin_requested.connect(self.pin_requested)
        tools.strike_requested.connect(self.strike_requested)
        tools.passages_changed.connect(self.passages_changed)
        tools.more_passages_requested.connect(self.more_passages_requested)
        tools.no_passages_requested.connect(self.no_passages_requested)
        tools.stop_call.connect(self.stop_call)
        tools.answer_again_from.connect(self.answer_again_from)
        tools.activity_requested.connect(self.activity_requested)
        tools.kept_file_requested.connect(self.kept_file_requested)
        self.calls.decided.connect(self.decided)
        pointer.shape_changed.connect(self._set_cursor)

    def _set_up(self) -> None:
        accessibility.register(Transcript, lambda view: AccessibleTranscript(view.access))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # What is typed here goes to the composer, with an input method too.
        self.setAttribute(Qt.WidgetAttribute.WA_InputMethodEnabled)
        self.setAccessibleName(tr("Chat"))
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.viewport().setMouseTracking(True)
        self.verticalScrollBar().setSingleStep(24)
        self.message_layout.width = self.width()

    # --- messages ---------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """Whether the end of the conversation is visible."""
        return self.scroller.at_end

    @property
    def working(self) -> bool:
        """Whether idle layout or highlighting is scheduled."""
        return self._idle.active

    def set_messages(
        self,
        messages: Sequence[Message],
        compared: Mapping[int, Message] | None = None,
        instructions: Message | None = None,
    ) -> None:
        """Show a conversation at its end; keep the scroll position if it only continues.

        `compared` has the second answer of each open comparison, by the id of the first.
        """
        self._updates.flush()
        self.editing.end()
        self.thumbnails.forget_faults()
        self._instructions = instructions
        first = () if instructions is None or not messages else (instructions,)
        kept = self.stack.set((*first, *messages), compared)
        self.selection.forget_from(kept)
        self.keys.forget()
        self.scroller.follow = self.scroller.follow or kept <= len(first)
        self._relayout_all()
        self.calls.sync()
        self.access.changed()
        self._idle.start(0)
        self.finder.restart()

    def set_instructions(self, message: Message | None) -> None:
        """Show other instructions above the first message; nothing else moves."""
        before, self._instructions = self._instructions, message
        stack = self.stack
        if message == before or not stack.views:
            return
        if message is not None and stack.index_of(message.id) is not None:
            self.update_message(message)
            return
        self._updates.flush()
        self.editing.end()
        anchor = self.scroller.anchor()
        own = [view.message for view in stack.views if view.message.id != ID]
        compared = {each.id: each for each in own if each.id in stack.compared.values()}
        pairs = {one: compared[other] for one, other in stack.compared.items()}
        first = () if message is None else (message,)
        left = [each for each in own if each.id not in compared]
        stack.set((*first, *left), pairs)
        moved = 1 if message is not None else -1
        if anchor is not None and anchor[0] + moved >= 0:
            anchor = (anchor[0] + moved, *anchor[1:])
        self.selection.forget_from(0)
        self.keys.forget()
        self.scroller.relayout(anchor)
        self.viewport().update()
        self.access.changed()
        self.finder.restart()

    def set_compared(self, compared: Mapping[int, Message]) -> None:
        """Show the open comparisons as columns, if they are not shown so already."""
        views, seconds = self.stack.views, set(self.stack.compared.values())
        seconds.add(ID)
        messages = [view.message for view in views if view.message.id not in seconds]
        wanted = {each.id: compared[each.id].id for each in messages if each.id in compared}
        if wanted != self.stack.compared:
            self.set_messages(messages, compared, self._instructions)

    def expect(self, settings: Mapping[int, GenerationSettings]) -> None:
        """Say in the headers of answers that have not begun what they will be written with."""
        self.message_layout.expected = settings
        self.viewport().update()

    def append_message(self, message: Message) -> None:
        """Append a message; a user message scrolls to the end."""
        self._updates.flush()
        if self._instructions is not None and not self.stack.views:
            self.stack.append(self._instructions)
        self.stack.append(message)
        if message.role is Role.USER:
            self.scroller.follow = True
        self._relayout_all()
        self.access.changed()
        self.finder.message_changed(message.id)

    def append_text(self, message: Message, text: str) -> None:
        """Show a streaming answer to which this text was added, throttled by `Updates`."""
        self._updates.add(message, text)

    def _show_text(self, message: Message, text: str) -> None:
        index = self.stack.index_of(message.id)
        if index is None:
            return
        view = self.stack.views[index]
        view.note = ""
        height = view.height
        view.append(message, text)
        self.finder.message_changed(message.id)
        if self.stack.is_built(index):
            if view.height != height:
                self._height_changed(index)
            self._repaint(index, view.changed_from)

    def update_message(self, message: Message) -> None:
        """Show a later state of a message."""
        self._updates.flush()
        index = self.stack.index_of(message.id)
        if index is None:
            return
        view = self.stack.views[index]
        if message.state is not MessageState.STREAMING:
            view.note = ""
        view.update(message)
        if view.is_user:
            self.stack.pass_on(index + 1)
        self.finder.message_changed(message.id)
        self._height_changed(index)
        if self.stack.place_in_pair(index):
            self.viewport().update()  # the headers of both may have changed
        self._repaint(index, -30.0)

    def remove_message(self, message_id: int) -> None:
        """Remove a message."""
        self._updates.flush()
        if message_id == self.editing.message_id:
            self.editing.end()
        index = self.stack.remove(message_id)
        if index is not None:
            self.selection.forget_from(index)
            self.keys.forget()
            self._relayout_all()
            self.access.changed()
            self.finder.restart()

    def set_memory_start(self, message_id: int | None) -> None:
        """Draw the line where the model's memory begins above this message; None: nowhere."""
        anchor = self.scroller.anchor()
        if self.stack.set_memory_start(message_id):
            self.scroller.relayout(anchor)
            self.viewport().update()

    def set_left_out(self, questions: frozenset[int]) -> None:
        """Say at these questions that the model no longer reads their passages."""
        for view in self.stack.views:
            view.left_out = view.message.id in questions
        self.viewport().update()

    def set_waiting(self, message_id: int, note: str) -> None:
        """Show a note in place of an empty answer, such as the prefill progress."""
        index = self.stack.index_of(message_id)
        if index is not None and self.stack.views[index].note != note:
            self.stack.views[index].note = note
            self._repaint_message(index)

    def set_busy(self, busy: bool) -> None:
        """Set whether an answer is being generated, which hides tools that would start another."""
        if busy != self.tools.busy:
            self.tools.busy = busy
            if busy:
                self.editing.end()
            self.viewport().update()

    def variants_menu(self, message_id: int) -> QMenu:
        """The ways to ask for an answer again."""
        menu = new_menu(self)
        for how, text in (
            (AnswerAgain.SAME, tr("Answer again")),
            (AnswerAgain.SHORTER, tr("Shorter")),
            (AnswerAgain.LONGER, tr("Longer")),
            (AnswerAgain.OTHER_MODEL, tr("With another model…")),
        ):
            ask = partial(self.regenerate_requested.emit, message_id, how)
            menu.addAction(text).triggered.connect(ask)
        return menu

    def _open_variants(self, index: int, area: QRectF) -> None:
        """Open the menu below its tool."""
        layout = self.message_layout
        area = area.translated(layout.left_of(index), layout.message_top(index))
        menu = self.variants_menu(self.stack.views[index].message.id)
        popup_below(menu, self.viewport(), area.toRect())

    def set_reading(self, message_id: int | None, *, offered: bool) -> None:
        """Set which message is read aloud, and whether that is offered for the others."""
        self.tools.reading, self.tools.can_read = message_id, offered
        self.access.changed()
        self.viewport().update()

    def _recolor(self, palette: Palette) -> None:
        layout = self.message_layout
        if palette != layout.style.palette:
            self._restyle(ReadingStyle(palette, layout.style.zoom))

    def set_zoom(self, zoom: float) -> None:
        """Set the text size; 1 is the normal one."""
        if zoom != self.message_layout.style.zoom:
            self._restyle(ReadingStyle(self.message_layout.style.palette, zoom))

    def _restyle(self, style: ReadingStyle) -> None:
        layout = self.message_layout
        anchor = self.scroller.anchor()
        layout.style = style
        self.stack.restyle(layout.style)
        self._idle.forget_code()
        if self.editing.editor:
            self.editing.editor.apply_style(self.message_layout.style)
            self.editing.fit()
        self.calls.apply_style(style)
        self.scroller.relayout(anchor)
        self.viewport().update()
        self._idle.start(0)

    # --- tools ------------------------------------------------------------------------------

    def edit_message(self, message_id: int) -> None:
        """Edit a message in place: a question is sent again, an answer kept as a new version."""
        index = self.stack.index_of(message_id)
        if index is None or self.tools.busy:
            return
        self.editing.end()
        self.scroller.follow = False
        self.editing.begin(index, self.message_layout.style)
        top = self.message_layout.message_top(index)
        if top < 0 or top + self.stack.views[index].height > self.viewport().height():
            self.scroller.scroll_to(self.stack.top(index) - 24)
        self.viewport().update()

    # --- copying ----------------------------------------------------------------------------

    def select_all(self) -> None:
        """Select the whole conversation."""
        while self.stack.build_some(1.0):
            pass
        self._relayout_all()
        if self.stack.views:
            # Behind the last block: also the cards below it.
            last = len(self.stack) - 1
            self.selection.set((0, 0, 0), (last, len(self.stack.views[-1].parts), 0))

    def selected_text(self) -> str:
        """The selection as it is shown."""
        return self.selection.shown(self.stack.views)

    def stop_finding(self) -> None:
        """Remove the matches of Find in conversation, and select the current one."""
        spots = self.finder.current_spots()
        self.finder.stop()
        if spots is not None:
            self.selection.set(*spots)

    def copy(self) -> None:
        """Copy the selection as Markdown, or as plain text of a part of a block, and as HTML."""
        if not self.selection.empty:
            views = self.stack.views
            self.tools.copy(self.selection.text(views), self.selection.html(views))

    # --- scrolling and layout ---------------------------------------------------------------

    def jump_to_end(self) -> None:
        """Scroll to the end and follow streamed text."""
        self.message_layout.jump_to_end()

    def _relayout_all(self) -> None:
        self.scroller.relayout()
        self.viewport().update()

    def _height_changed(self, index: int) -> None:
        before = self.stack.height
        self.stack.refresh(index)
        below = self.message_layout.message_top(index)
        self.scroller.relayout()
        if index < len(self.stack) - 1 or self.stack.height < before:
            self.viewport().update(0, max(round(below), 0), self.width(), self.height())

    def _moved(self, dy: int, everything: bool) -> None:
        """Scroll the painted viewport by `dy`, or repaint it."""
        if everything or abs(dy) >= self.viewport().height():
            self.viewport().update()
        elif dy:
            self.viewport().scroll(0, dy)
        self.editing.move()
        self.calls.move()
        self.pointer.scrolled()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.calls.move()

    def resizeEvent(self, arg__1: QResizeEvent) -> None:
        anchor = self.scroller.anchor()
        self.message_layout.width = self.width()
        self.message_layout.viewport_left = self.viewport().x()
        room = self.width() - 2 * MARGIN
        self.stack.set_column(max(min(COLUMN_WIDTH, room), 160), room)
        self.scroller.relayout(anchor)
        self.editing.fit()
        self.calls.fit()
        self.viewport().update()
        self._idle.start(_RESIZE_MILLISECONDS)

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.scroller.scrolled(dy)

    # --- painting ---------------------------------------------------------------------------

    def _repaint_message(self, index: int) -> None:
        """Repaint a message."""
        self._repaint(index, -30.0)

    def _repaint_below(self, index: int, top: float) -> None:
        """Repaint a message from `top` on, and the messages below it, which may have moved."""
        y = max(round(self.message_layout.message_top(index) + top) - 2, 0)
        self.viewport().update(0, y, self.width(), self.height())

    def _repaint_thumbnails(self, sha256: str) -> None:
        """Repaint the messages on the screen with this picture."""
        top = self.message_layout.offset()
        for index in self.stack.between(top, top + self.message_layout.page()):
            shown = shown_pictures(self.stack.views[index].message.parts)
            if any(each.sha256 == sha256 for each in shown):
                self._repaint_message(index)

    def _repaint_hover(self, index: int) -> None:
        """Repaint the parts of a message that depend on the mouse position."""
        view = self.stack.views[index]
        self._repaint(index, view.tools_top)
        for top, bottom in view.hover_bands():
            self._repaint(index, top, bottom)

    def _repaint(self, index: int, top: float, bottom: float | None = None) -> None:
        if index >= len(self.stack):
            return
        y = self.message_layout.message_top(index)
        end = self.stack.views[index].height if bottom is None else bottom
        area = QRect(0, round(y + top) - 2, self.width(), round(end - top) + 4)
        self.viewport().update(area & self.viewport().rect())

    def paintEvent(self, arg__1: QPaintEvent) -> None:
        began = time.perf_counter()
        painter = QPainter(self.viewport())
        try:
            self._painter.paint(painter, QRectF(arg__1.rect()), has_focus=self.hasFocus())
        finally:
            painter.end()
        self._updates.record_paint(time.perf_counter() - began)
        self.formulas.check()

    # --- events -----------------------------------------------------------------------------

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Leave:
            self.pointer.moved(None)
        elif isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            tip = self.pointer.tip(QPointF(event.pos()))
            if tip:
                QToolTip.showText(event.globalPos(), wrapped_tip(tip), self.viewport())
            else:
                QToolTip.hideText()
            return True
        return super().viewportEvent(event)

    def _set_cursor(self, shape: Qt.CursorShape) -> None:
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
        if arg__1.modifiers() & Qt.KeyboardModifier.ControlModifier:
            if turned := arg__1.angleDelta().y():
                self.zoom_requested.emit(1 if turned > 0 else -1)
        elif not self.pointer.wheel(arg__1):
            pixels = arg__1.pixelDelta().y()
            self.scroller.scroll_to(
                self.message_layout.offset() - (pixels or arg__1.angleDelta().y() * 0.6)
            )
        arg__1.accept()

    def contextMenuEvent(self, arg__1: QContextMenuEvent) -> None:
        point = QPointF(arg__1.pos())
        index = self.message_layout.message_at(point)
        target = self.pointer.target(point)
        tools = self.tools.all(index)[0] if index >= 0 else []
        use = {tool.name: partial(self.tools.use, index, tool) for tool in tools}
        row = self.stack.views[index].rows[target.row] if target.row >= 0 else None
        file, image = (row.file, row.image) if row else (None, None)
        called = self.tools.call_at(index, point) if index >= 0 else None
        source = file or image
        folder = partial(self.folder_requested.emit, Path(source.path)) if source else None
        menu = context_menu.make(
            self,
            copy_selection=None if self.selection.empty else self.copy,
            copy=self.tools.copy,
            select_all=self.select_all,
            link="" if passage_number(target.link) else target.link,
            formula=target.formula,
            message=clipboard_text(self.stack.views[index].message.parts) if index >= 0 else None,
            show_marks=use.get("show_marks"),
            compare=use.get("compare"),
            fork=use.get("fork"),
            open_file=partial(self.file_opened.emit, file) if file else None,
            open_image=partial(self.image_opened.emit, image) if image else None,
            show_in_folder=folder if source and source.path else None,
            call=call_text(called.part, called.result) if called else "",
        )
        menu.popup(arg__1.globalPos())

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
        elif arg__1.reason() is reasons.PopupFocusReason:
            self.keys.come_back()
        self.viewport().update()
        super().focusInEvent(arg__1)
        QTimer.singleShot(0, self.keys, self.keys.tell_again)

    def focusOutEvent(self, arg__1: QFocusEvent) -> None:
        self.keys.leave()
        self.viewport().update()
        super().focusOutEvent(arg__1)


def wrapped_tip(tip: str) -> str:
    """A tooltip as it is shown: Qt wraps the lines of rich text only."""
    return tip if len(tip) < _WIDEST_TIP else f"<p>{escape(tip).replace(chr(10), '<br>')}</p>"
