"""Mouse input of the transcript: hit testing, hover, clicks and drag selection.

Hover, click and drag share one hit test, `Pointer.target`.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, QPointF, Qt, QTimer, Signal
from PySide6.QtGui import QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QApplication

from app.system.translation import tr
from app.ui.blocks.blocks import BlockButton, ButtonHolder
from app.ui.blocks.formula import FormulaHolder, ScrollingView
from app.ui.transcript import column_header, memory_line
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message.message_tools import Tool
from app.ui.transcript.message.pictures import tip as picture_tip
from app.ui.transcript.selection import Spot
from app.ui.transcript.tools import Tools


@dataclass(frozen=True, slots=True)
class Target:
    """Result of a hit test: the message and the control, link or text at a point."""

    message: int = -1
    tool: Tool | None = None
    row: int = -1  # that folds a part of the message or opens a file
    stops: bool = False  # the button of the row that stops its call
    part: int = -1  # block with the button
    block_button: BlockButton | None = None
    bar: ScrollingView | None = None  # whose scroll bar
    bar_left: float = 0.0  # left edge of that block, in viewport coordinates
    link: str = ""
    formula: str = ""  # its source
    text: bool = False

    @property
    def button(self) -> object:
        """An identifier of the button at the point, or None."""
        if self.tool:
            return (self.message, self.tool.name)
        if self.block_button:
            return (self.message, self.part, self.block_button.name)
        return (self.message, self.row, self.stops) if self.row >= 0 else None


class Pointer(QObject):
    """Handles mouse events: hover, pressed target, click count and selection drag."""

    shape_changed = Signal(Qt.CursorShape)

    def __init__(self, layout: TranscriptLayout, tools: Tools) -> None:
        super().__init__(layout)
        self._layout = layout
        self._tools = tools
        self._shape = Qt.CursorShape.ArrowCursor
        self.point: QPointF | None = None  # last mouse position, viewport coordinates
        self._pressed = Target()
        self._selecting = False
        self._unit = 1  # 1: characters, 2: words, 3: lines
        self._origin: tuple[Spot, Spot] | None = None  # the word or line where the drag began
        self._clicks_at = QPointF()
        self._clicks = 0
        self._click_timer = QTimer(self)
        self._click_timer.setSingleShot(True)
        self._autoscroll = QTimer(self)
        self._autoscroll.setInterval(30)
        self._autoscroll.timeout.connect(self._autoscroll_step)

    # --- hover ------------------------------------------------------------------------------

    def target(self, point: QPointF) -> Target:
        """Hit test at a viewport point."""
        layout = self._layout
        y = point.y() + layout.offset()
        index = layout.message_at(point)
        if index < 0 or y < layout.stack.top(0):
            return Target()
        message = layout.stack.views[index]
        inside = layout.local(index, point)
        beside = 16 if layout.stack.place_in_pair(index) else 48
        right = layout.stack.width(index) + beside
        if inside.y() > message.height or not -beside <= inside.x() <= right:
            return Target()
        for tool, area in zip(*self._tools.shown(index), strict=True):
            if area.contains(inside):
                return Target(index, tool=tool if tool.can_act else None)
        if (row := message.row_at(inside)) >= 0:
            return Target(index, row=row, stops=message.rows[row].stop.contains(inside))
        number = message.part_at(inside.y())
        if number < 0:
            return Target(index)
        part = message.parts[number]
        x, y = inside.x() - part.x, inside.y() - part.y
        block = part.view
        for button in block.buttons() if isinstance(block, ButtonHolder) else ():
            if button.area.contains(QPointF(x, y)):
                return Target(index, part=number, block_button=button)
        within = 0 <= x <= part.width and 0 <= y <= block.height
        if within and isinstance(block, ScrollingView) and block.over_scroll_bar(y):
            return Target(index, bar=block, bar_left=point.x() - x)
        if not within:
            return Target(index)
        formula = block.formula_at(x, y) if isinstance(block, FormulaHolder) else ""
        link, text = block.link_at(x, y), block.over_text(x, y)
        return Target(index, link=link, formula=formula, text=text)

    def moved(self, point: QPointF | None) -> None:
        """Update hover and cursor shape for a mouse position; None: it left the viewport."""
        layout, before = self._layout, self._layout.hovered
        old = self.point
        self.point = point
        target = self.target(point) if point is not None else Target()
        layout.hovered = target.message
        if layout.hovered != before and before >= 0:
            layout.message_changed.emit(before)
        if layout.hovered >= 0 and (layout.hovered != before or point != old):
            layout.hover_changed.emit(layout.hovered)
        hand = target.button is not None or bool(target.link)
        shape = Qt.CursorShape.PointingHandCursor if hand else Qt.CursorShape.ArrowCursor
        if target.text and not hand:
            shape = Qt.CursorShape.IBeamCursor
        if shape is not self._shape:
            self._shape = shape
            self.shape_changed.emit(shape)

    def scrolled(self) -> None:
        """Update hover after scrolling moved other content under the mouse."""
        if self.point is not None and not self._selecting:
            self.moved(self.point)

    def tip(self, point: QPointF) -> str:
        """The tooltip at a point: a tool's text or a link's address; empty for none."""
        target = self.target(point)
        if target.tool:
            return target.tool.text
        if target.stops:
            return tr("Stop this call")
        if target.row >= 0:
            row = self._layout.stack.views[target.message].rows[target.row]
            return picture_tip(row.image) if row.image is not None else ""
        if self._layout.memory_line().contains(point):
            return memory_line.tip()
        for area, words in self._layout.headers():
            if area.contains(point):
                cut = column_header.is_cut(self._layout.style, area.width(), words)
                return words if cut else ""
        if target.block_button and not target.block_button.labelled:
            return target.block_button.words
        return (
            self._layout.stack.views[target.message].link_words(target.link) if target.link else ""
        )

    # --- press, drag, release ---------------------------------------------------------------

    def press(self, event: QMouseEvent) -> None:
        """Handle a press of the left button: start dragging a scroll bar or selecting."""
        point = event.position()
        self._pressed = self.target(point)
        if self._pressed.bar:
            self._drag_bar(point)
            return
        if self._pressed.button is not None:
            return
        self._count_click(point)
        spot = self._layout.spot_at(point)
        if spot is None:
            return
        selection = self._layout.selection
        self._selecting = True
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and selection.anchor:
            self._unit, self._origin = 1, (selection.anchor, selection.anchor)
        else:
            self._unit = self._clicks
            self._origin = self._around(spot)
        self._select_to(spot)

    def _count_click(self, point: QPointF) -> None:
        near = (point - self._clicks_at).manhattanLength() < 6
        again = self._click_timer.isActive() and near
        self._clicks = self._clicks % 3 + 1 if again else 1
        self._clicks_at = point
        self._click_timer.start(QApplication.doubleClickInterval())

    def drag(self, point: QPointF) -> None:
        """Handle a mouse move with the left button down."""
        self.point = point
        if self._pressed.bar:
            self._drag_bar(point)
        elif self._selecting:
            if (point - self._clicks_at).manhattanLength() >= 6:
                self._click_timer.stop()  # a drag does not count towards a double click
            spot = self._layout.spot_at(point)
            if spot is not None:
                self._select_to(spot)
            outside = not 0 <= point.y() <= self._layout.page()
            if outside and not self._autoscroll.isActive():
                self._autoscroll.start()
            elif not outside:
                self._autoscroll.stop()
            self._reveal(point)

    def release(self, point: QPointF) -> None:
        """Handle a release: activate the button or link if it was pressed there too."""
        layout, pressed, target = self._layout, self._pressed, self.target(point)
        was_selecting, self._selecting = self._selecting, False
        self._pressed = Target()
        self._autoscroll.stop()
        if pressed.button is not None and pressed.button == target.button:
            if pressed.tool:
                self._tools.use(pressed.message, pressed.tool)
            elif pressed.block_button:
                self._tools.use_button(pressed.message, pressed.part, pressed.block_button.name)
            elif pressed.stops:
                self._tools.use_stop(pressed.message, pressed.row)
            else:
                layout.use_row(pressed.message, pressed.row)
        elif was_selecting and pressed.link == target.link != "" and layout.selection.empty:
            layout.use_link(pressed.message, pressed.link)
        self.moved(point)

    def _drag_bar(self, point: QPointF) -> None:
        block = self._pressed.bar
        if block and block.horizontal_scroll.drag_to(point.x() - self._pressed.bar_left):
            self._layout.message_changed.emit(self._pressed.message)

    def _reveal(self, point: QPointF) -> None:
        """Scroll a card horizontally while a selection is dragged past its edge."""
        spot = self._layout.spot_at(point)
        if spot is None:
            return
        message = self._layout.stack.views[spot[0]]
        if spot[1] >= len(message.parts):
            return
        part = message.parts[spot[1]]
        if isinstance(part.view, ScrollingView):
            x = self._layout.local(spot[0], point).x() - part.x
            horizontal_scroll = part.view.horizontal_scroll
            past = x - part.width if x > part.width else min(x, 0.0)
            if past and horizontal_scroll.move_to(horizontal_scroll.offset + past / 2):
                self._layout.message_changed.emit(spot[0])

    def _autoscroll_step(self) -> None:
        """Autoscroll while a selection is dragged above or below the viewport."""
        if self.point is None or not self._selecting:
            return
        height = self._layout.page()
        past = self.point.y() - height if self.point.y() > height else min(self.point.y(), 0.0)
        self._layout.scroll_to(self._layout.offset() + past / 2)
        spot = self._layout.spot_at(self.point)
        if spot is not None:
            self._select_to(spot)

    # --- selecting --------------------------------------------------------------------------

    def _around(self, spot: Spot) -> tuple[Spot, Spot]:
        """The character, word or line at a text position, by the selection unit."""
        message = self._layout.stack.views[spot[0]]
        if self._unit == 1 or spot[1] >= len(message.parts):
            return spot, spot
        block = message.parts[spot[1]].view
        around = block.word_around if self._unit == 2 else block.line_around
        start, end = around(spot[2])
        return (*spot[:2], start), (*spot[:2], end)

    def _select_to(self, spot: Spot) -> None:
        if self._origin is None:
            return
        start, end = self._around(spot)
        selection = self._layout.selection
        if start < self._origin[0]:
            selection.set(self._origin[1], start)
        else:
            selection.set(self._origin[0], max(end, self._origin[1]))
        if not selection.empty:
            self._layout.scroller.follow = False
        self._layout.changed.emit()

    # --- wheel ------------------------------------------------------------------------------

    def wheel(self, event: QWheelEvent) -> bool:
        """Scroll a wide card horizontally; False if the event is a vertical scroll."""
        delta = event.pixelDelta() if not event.pixelDelta().isNull() else event.angleDelta() / 2
        across = delta.x()
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            across = across or delta.y()
        if (
            abs(across) <= abs(delta.y())
            and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        ):
            return False
        layout = self._layout
        spot = layout.spot_at(event.position())
        if spot is None or spot[1] >= len(layout.stack.views[spot[0]].parts):
            return False
        block = layout.stack.views[spot[0]].parts[spot[1]].view
        if not isinstance(block, ScrollingView) or not block.horizontal_scroll.overflows:
            return False
        if block.horizontal_scroll.move_to(block.horizontal_scroll.offset - across):
            layout.message_changed.emit(spot[0])
        return True
