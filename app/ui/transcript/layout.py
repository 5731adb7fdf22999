"""Transcript layout: where the messages of a conversation stand in the view, and which is in use.

It knows no widget. Pointer, keyboard, tools and the accessibility tree ask it for places, and say
through its signals what has to be drawn again; the transcript draws.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, QPointF, Signal

from app.ui.blocks.style import ReadingStyle
from app.ui.transcript.message_stack import MessageStack
from app.ui.transcript.scroll import Scroller
from app.ui.transcript.selection import Selection, Spot


class TranscriptLayout(QObject):
    """Places in the coordinates of the viewport; a message is named by its index."""

    message_changed = Signal(int)  # it has to be drawn again
    hover_changed = Signal(int)  # only what depends on where the mouse is
    changed = Signal()  # everything that can be seen

    def __init__(
        self, style: ReadingStyle, stack: MessageStack, scroller: Scroller, parent: QObject
    ) -> None:
        super().__init__(parent)
        self.style = style
        self.stack = stack
        self.scroller = scroller
        self.selection = Selection()
        self.width = 0  # of the whole view, in which the column is centred
        self.hovered = -1  # the message under the mouse
        self.focused = -1  # the message that has the keyboard

    def column_left(self) -> int:
        """Where the column begins."""
        return (self.width - round(self.stack.column)) // 2

    def offset(self) -> int:
        """How far the conversation is scrolled."""
        return self.scroller.offset

    def page(self) -> int:
        """How high the viewport is."""
        return self.scroller.page

    def message_top(self, index: int) -> float:
        """Where a message begins."""
        return self.scroller.top_of(index)

    def local(self, index: int, point: QPointF) -> QPointF:
        """A point relative to a message."""
        return point - QPointF(self.column_left(), self.message_top(index))

    def spot_at(self, point: QPointF) -> Spot | None:
        """The place in the text nearest to a point."""
        index = self.stack.at(point.y() + self.offset())
        if index < 0:
            return None
        view = self.stack.views[index]
        inside = self.local(index, point)
        number = view.part_at(inside.y())
        if number < 0:
            return index, 0, 0
        part = view.parts[number]
        return index, number, part.view.hit(inside.x() - part.x, inside.y() - part.y)

    def scroll_to(self, value: float) -> None:
        """Scroll there on behalf of the reader."""
        self.scroller.scroll_to(value)

    def jump_to_end(self) -> None:
        """Bring the end into sight and follow it."""
        self.scroller.follow = True
        self.scroller.settle()
        self.changed.emit()

    def toggle_thoughts(self, index: int) -> None:
        """Fold or unfold what the model thought; the line that was used stays where it is."""
        view = self.stack.views[index]
        top = self.message_top(index)
        self.selection.forget_from(index)
        if not view.streaming:
            self.scroller.follow = False
        view.fold(not view.folded)
        self.stack.refresh(index)
        self.scroller.settle(None if self.scroller.follow else (index, -1, top))
        self.changed.emit()
