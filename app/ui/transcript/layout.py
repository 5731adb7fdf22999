"""Transcript layout: maps messages to viewport coordinates, and holds hover, focus and selection.

It references no widget. Pointer, keyboard, tools and the accessibility tree share it for hit
testing and emit its signals to request repaints, which the `Transcript` widget performs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtCore import QObject, QPointF, QRectF, Signal

from app.domain.generation_settings import GenerationSettings
from app.domain.message import MessageState
from app.markdown.blocks import passage_number
from app.ui.blocks.style import ReadingStyle
from app.ui.transcript import column_header, memory_line
from app.ui.transcript.message.differences import differences, settings_of
from app.ui.transcript.message.message_stack import MessageListLayout
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.scroll import Scroller
from app.ui.transcript.selection import Selection, Spot


class TranscriptLayout(QObject):
    """Layout state in viewport coordinates; messages are identified by their index."""

    message_changed = Signal(int)  # index; repaint this message
    hover_changed = Signal(int)  # index; repaint its parts that depend on the mouse
    changed = Signal()  # repaint the viewport
    file_opened = Signal(object)  # FilePart, whose row was used
    image_opened = Signal(object)  # ImagePart, whose thumbnail was used
    link_activated = Signal(str)  # address
    passage_opened = Signal(object)  # Passage, whose document is to be shown

    def __init__(
        self, style: ReadingStyle, stack: MessageListLayout, scroller: Scroller, parent: QObject
    ) -> None:
        super().__init__(parent)
        self.style = style
        self.stack = stack
        self.scroller = scroller
        self.selection = Selection()
        self.width = 0  # of the whole view, in which the column is centred
        self.viewport_left = 0  # in the view; right to left, the scroll bar is before it
        self.hovered = -1  # the message under the mouse; -1: none
        self.focused = -1  # the message with the keyboard focus; -1: none
        self.expected: Mapping[
            int, GenerationSettings
        ] = {}  # of answers that have not begun, by message

    def column_left(self) -> int:
        """The left edge of the text column."""
        return (self.width - round(self.stack.column)) // 2 - self.viewport_left

    def left_of(self, index: int) -> float:
        """The left edge of a message's own column, in viewport coordinates."""
        return self.column_left() + self.stack.left(index)

    def message_at(self, point: QPointF) -> int:
        """The message nearest to a viewport point; -1 without messages."""
        return self.stack.at(point.y() + self.offset(), point.x() - self.column_left())

    def offset(self) -> int:
        """The vertical scroll offset, in pixels."""
        return self.scroller.offset

    def page(self) -> int:
        """The height of the viewport, in pixels."""
        return self.scroller.page

    def message_top(self, index: int) -> float:
        """The y coordinate of a message's top, in viewport coordinates."""
        return self.scroller.top_of(index)

    def memory_line(self) -> QRectF:
        """The line where the model's memory begins, in viewport coordinates; empty: none."""
        index = self.stack.memory_line
        if index is None:
            return QRectF()
        top = self.message_top(index) - memory_line.HEIGHT
        if self.stack.place_in_pair(index):
            top -= column_header.height(self.style)
        return QRectF(self.column_left(), top, self.stack.column, memory_line.HEIGHT)

    def headers(self) -> list[tuple[QRectF, str]]:
        """The headers of compared answers: area in viewport coordinates, and words."""
        stack, height = self.stack, column_header.height(self.style)
        found: list[tuple[QRectF, str]] = []
        for first in stack.compared:
            at = stack.index_of(first)
            if at is None:
                continue
            for index, words in enumerate(self.pair_words(at), at):
                top = self.message_top(index) - height
                area = QRectF(self.left_of(index), top, stack.width(index), height)
                found.append((area, words))
        return found

    def header_words(self, index: int) -> str:
        """What a compared answer is written with, where the other differs; else nothing."""
        place = self.stack.place_in_pair(index)
        return self.pair_words(index - place + 1)[place - 1] if place else ""

    def pair_words(self, first: int) -> tuple[str, str]:
        """The words of the headers of two compared answers."""
        one, other = (self._settings(index) for index in (first, first + 1))
        return differences(one, other)

    def _settings(self, index: int) -> GenerationSettings:
        """What an answer is written with; its adapters are stored only when it begins."""
        message = self.stack.views[index].message
        made, expected = settings_of(message), self.expected.get(message.id)
        if expected is None or message.parts or message.state is not MessageState.STREAMING:
            return made
        return replace(made, adapters=expected.adapters)

    def local(self, index: int, point: QPointF) -> QPointF:
        """Map a viewport point to message coordinates."""
        return point - QPointF(self.left_of(index), self.message_top(index))

    def spot_at(self, point: QPointF) -> Spot | None:
        """The text position nearest to a viewport point; None without messages."""
        index = self.message_at(point)
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
        """Scroll to an offset, as if the user did."""
        self.scroller.scroll_to(value)

    def jump_to_end(self) -> None:
        """Scroll to the end and follow streamed text."""
        self.scroller.follow = True
        self.scroller.relayout()
        self.changed.emit()

    def use_row(self, index: int, row: int) -> None:
        """Open the file or picture that a row of a message stands for, or fold or unfold its blocks."""
        rows = self.stack.views[index].rows
        if row < len(rows) and (file := rows[row].file) is not None:
            self.file_opened.emit(file)
        elif row < len(rows) and (image := rows[row].image) is not None:
            self.image_opened.emit(image)
        else:
            self.toggle_row(index, row)

    def use_link(self, index: int, link: str) -> None:
        """Open what a link of a message leads to."""
        if (passage := self.stack.views[index].passage(link)) is not None:
            self.passage_opened.emit(passage)
        elif not passage_number(link):
            self.link_activated.emit(link)

    def toggle_row(self, index: int, row: int) -> None:
        """Fold or unfold what a row of a message stands for, with its top as the scroll anchor."""
        rows = self.stack.views[index].rows
        if row >= len(rows) or not rows[row].foldable:
            return
        self._keep_top(index, lambda view: view.collapse(rows[row].section, not rows[row].folded))

    def hold_top(self, index: int) -> None:
        """Let the top of a message stay where it is when its layout changes."""
        self.selection.forget_from(index)
        if not self.stack.views[index].streaming:
            self.scroller.follow = False

    def _keep_top(self, index: int, change: Callable[[MessageView], None]) -> None:
        """Change the layout of a message, with its top as the scroll anchor."""
        view, top = self.stack.views[index], self.message_top(index)
        self.hold_top(index)
        change(view)
        self.stack.refresh(index)
        self.scroller.relayout(None if self.scroller.follow else (index, -1, top))
        self.changed.emit()
