"""Layout of one message: parsed blocks, card, thoughts, error text and tool row.

A message is parsed and laid out only before it becomes visible or in idle time; until then it has
an estimated height. While it streams, only the changed blocks are laid out again.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QPointF, QRectF, QSizeF

from app.markdown.blocks import (
    Block,
    Code,
    Formula,
    Heading,
    Level,
    Paragraph,
    Place,
    Rule,
    Run,
    Table,
)
from app.markdown.stream import OwnText, Reply, Stream
from app.store.parts import grown
from app.store.store import Message, MessageState
from app.system.translation import tr
from app.ui.blocks.blocks import BlockView, RuleView, TextView
from app.ui.blocks.code import CodeView
from app.ui.blocks.formula import formula_view
from app.ui.blocks.style import CODE_HEADER, DEEPEST_INDENT, INDENT, QUOTE_INDENT, ReadingStyle
from app.ui.blocks.table import TableView
from app.ui.blocks.text import Flow
from app.ui.blocks.typesetting import TYPESETTER
from app.ui.transcript.endings import ending
from app.ui.transcript.message_tools import ROW
from engine import Role

CARD_SHARE = 0.85  # maximum width of a user message's card, as a share of the column
CARD_PADDING_X, CARD_PADDING_Y = 16.0, 11.0  # pixels: horizontal and vertical padding of that card
THOUGHT_LINE = 28.0
_BELOW_THOUGHTS = 8.0
_AFTER = {Role.USER: 8.0, Role.ASSISTANT: 20.0, Role.SYSTEM: 12.0}  # pixels to the next message


@dataclass(slots=True)
class Part:
    """A block view with its position; coordinates are relative to the message."""

    view: BlockView
    path: tuple[Level, ...]
    thought: bool
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0

    @property
    def view_size(self) -> QSizeF:
        """The size of the block."""
        return QSizeF(self.width, self.view.height)


class MessageView:
    """Layout of one message for a column width; coordinates are relative to its top-left corner."""

    def __init__(
        self, message: Message, style: ReadingStyle, highlight_later: Callable[[CodeView], None]
    ) -> None:
        self.message = message
        self.parts: list[Part] = []
        self.height = 0.0
        self.built = False
        self.folded = True
        self.note = ""  # shown instead of an empty answer
        self.card = QRectF()
        self.hidden_for_edit = False
        self.edit_height = 0.0
        self.error: Flow | None = None
        self.tools_top = 0.0
        self.changed_from = 0.0  # y from which the last update needs a repaint
        self._style = style
        self._highlight_later = highlight_later
        self._column = 0.0
        self._reply: Reply | None = None
        self._own: OwnText | None = None
        self._body: list[Block] = []
        self._ys: list[float] = []
        self._thinking_since = 0.0
        self._thought_seconds = 0.0

    def copy_thinking_times(self, other: MessageView) -> None:
        """Copy the measured thinking time from another view of the same message."""
        self._thinking_since = other._thinking_since
        self._thought_seconds = other._thought_seconds

    # --- content ----------------------------------------------------------------------------

    @property
    def own(self) -> bool:
        """Whether it is a user message."""
        return self.message.role is Role.USER

    @property
    def streaming(self) -> bool:
        """Whether the answer is still being generated."""
        return self.message.state is MessageState.STREAMING

    @property
    def thinking(self) -> bool:
        """Whether the answer being generated is still in its thoughts."""
        return self._reply is not None and self._reply.thinking and self.streaming

    @property
    def has_thoughts(self) -> bool:
        """Whether the answer has thoughts, and so a line that folds them."""
        return self._reply is not None and self._reply.has_thoughts

    def thought_words(self) -> str:
        """The text of the line that folds the thoughts."""
        if self.thinking:
            return tr("Thinking…")
        seconds = self._thought_seconds
        if seconds < 0.5:
            return tr("Thought")
        if seconds < 60:
            return tr("Thought for {seconds} s", seconds=max(round(seconds), 1))
        minutes, rest = divmod(round(seconds), 60)
        return tr("Thought for {minutes} min {seconds} s", minutes=minutes, seconds=rest)

    def source(self, first: int, last: int) -> str:
        """The Markdown source of the parts from `first` to `last`."""
        pieces: list[str] = []
        for thought in (True, False):
            inside = [p for p in self.parts[first : last + 1] if p.thought is thought]
            stream = self._stream(thought=thought)
            if inside and stream:
                pieces.append(
                    stream.source(inside[0].view.block.place.start, inside[-1].view.block.place.end)
                )
        return "\n\n".join(pieces).strip("\n")

    @property
    def folded_text(self) -> str:
        """The Markdown source of the thoughts while they are folded, else an empty text."""
        if self._reply is None or not self.folded:
            return ""
        return self._reply.thoughts.source(0, sys.maxsize)

    def _stream(self, *, thought: bool) -> Stream | OwnText | None:
        if self._reply:
            return self._reply.thoughts if thought else self._reply.body
        return self._own

    # --- building ---------------------------------------------------------------------------

    def built_for(self, column: float) -> bool:
        """Whether it is laid out for this column width."""
        return self.built and self._column == column

    def build(self, column: float) -> None:
        """Parse and lay out the message, if not done yet for this column width."""
        if not self.built:
            self._read()
        if not self.built or column != self._column:
            self.built = True
            self._column = column
            self.layout()

    def _read(self) -> None:
        text = self.message.text
        if self.own:
            self._own = OwnText(text)
            self._body = self._own.blocks
        else:
            self._reply = Reply()
            self._body = self._reply.body.blocks
            self._reply.feed(text, last=not self.streaming)
            if not self.streaming and text:
                share = self._reply.thought_characters / len(text)
                self._thought_seconds = self._thought_seconds or self.message.seconds * share
        self._sync(0)

    def append(self, text: str) -> None:
        """Append streamed text; the cost depends on the unfinished tail only."""
        self.message = replace(self.message, parts=grown(self.message.parts, text))
        if self.built:
            self._feed(text, last=False)

    def _feed(self, text: str, *, last: bool) -> None:
        reply = self._reply
        assert reply is not None
        thinking, had_thoughts = reply.thinking, reply.has_thoughts
        reply.feed(text, last=last)
        if reply.thinking and not thinking:
            self._thinking_since = time.monotonic()
        elif thinking and not reply.thinking:
            self._thought_seconds = time.monotonic() - self._thinking_since
        self.changed_from = max(self.bottom() - 2 * self._style.line, 0.0)
        self._sync(reply.kept)
        if self.built and reply.has_thoughts and not had_thoughts:
            self.changed_from = 0.0
            self._place(0)

    def _sync(self, kept: int) -> None:
        """Update the parts to match the blocks, of which the first `kept` are unchanged."""
        wanted: list[tuple[Block, bool]] = []
        if self._reply and self.has_thoughts and not self.folded:
            wanted = [(block, True) for block in self._reply.thoughts.blocks]
        first = 0 if wanted else min(kept, len(self.parts))
        wanted += [(block, False) for block in self._body[first if not wanted else 0 :]]
        changed = count = first + len(wanted)
        for index, (block, thought) in enumerate(wanted, first):
            part = self.parts[index] if index < len(self.parts) else None
            if part and part.view.block is block:
                continue
            changed = min(changed, index)
            if (
                part is None
                or part.thought is not thought
                or not self._updated_in_place(part, block)
            ):
                if part:
                    self.changed_from = min(self.changed_from, part.y - 30)
                part = Part(self._make(block), block.place.path, thought)
                self.parts[index : index + 1] = [part]
        if len(self.parts) > count:
            del self.parts[count:]
            changed = min(changed, count)
        if self.built and (changed < count or len(self._ys) != count):
            self._place(changed)

    def _updated_in_place(self, part: Part, block: Block) -> bool:
        if block.place.path != part.path or not part.view.update(block):
            return False
        if isinstance(part.view, CodeView | TableView):
            self.changed_from = min(self.changed_from, part.y + part.view.changed_from)
        part.view.block = block
        return True

    def _make(self, block: Block) -> BlockView:
        match block:
            case Code():
                return CodeView(block, self._style, self._highlight_later)
            case Table():
                return TableView(block, self._style)
            case Rule():
                return RuleView(block)
            case Formula():
                return formula_view(block, self._style)
            case Paragraph() | Heading():
                return TextView(block, self._style)

    def show_typeset(self) -> bool:
        """Rebuild the parts whose formulas were typeset meanwhile; returns whether any was."""
        ready = [
            index
            for index, part in enumerate(self.parts)
            if part.view.waiting and any(map(TYPESETTER.ready, part.view.waiting))
        ]
        for index in ready:
            part = self.parts[index]
            old, part.view = part.view, self._make(part.view.block)
            if isinstance(old, TableView) and isinstance(part.view, TableView):
                part.view.layout(part.width)
                part.view.horizontal_scroll.move_to(old.horizontal_scroll.offset)
        if ready:
            self.changed_from = self.parts[ready[0]].y - 30
            self._place(ready[0])
        return bool(ready)

    def fold(self, folded: bool) -> None:
        """Hide or show the thoughts."""
        self.folded = folded
        self.parts.clear()
        self._sync(0)
        self.layout()

    def update(self, message: Message) -> None:
        """Update to a later state of the message, incrementally if only text was appended."""
        before, self.message = self.message, message
        if not self.built:
            return
        appended = message.text.startswith(before.text)
        if self._reply and appended and before.state is MessageState.STREAMING:
            self._feed(message.text[len(before.text) :], last=not self.streaming)
        elif message.text != before.text or self.streaming:
            self.parts.clear()
            self._reply = self._own = None
            self._read()
        self.layout()

    # --- layout -----------------------------------------------------------------------------

    def guess(self, column: float) -> float:
        """The estimated height, from the length of the text."""
        text = self.message.text
        width = column * (CARD_SHARE if self.own else 1.0)
        lines = len(text) * 7.4 / max(width, 100.0) + text.count("\n") * 0.6 + 1
        return round(lines * self._style.line + ROW + _AFTER[self.message.role])

    def layout(self) -> None:
        """Lay out all parts for the column."""
        self._place(0)

    def _place(self, first: int) -> None:
        """Lay out the parts from `first` on, then the error text and the tool row."""
        if self.own:
            self._place_card()
        else:
            top = THOUGHT_LINE if self.has_thoughts else 0.0
            if self.folded and self.has_thoughts:
                top += _BELOW_THOUGHTS
            self._stack(first, top, 0.0, self._column)
        bottom = self.bottom()
        self.error = None
        if below := ending(self.message):
            style = self._style
            self.error = Flow((Run(below),), style, style.note_face)
            self.error.layout(self._column)
            bottom += self.error.height + (8 if self.parts else 0)
        self.tools_top = bottom + 4
        self.height = self.tools_top + ROW + _AFTER[self.message.role]

    def bottom(self) -> float:
        """The y coordinate of the end of the text, the editor or the waiting note."""
        if self.hidden_for_edit:
            return self.edit_height
        if self.own:
            return self.card.bottom()
        if self.parts:
            last = self.parts[-1]
            return last.y + last.view.height
        top = THOUGHT_LINE if self.has_thoughts else 0.0
        waiting = self.streaming and not self.thinking
        return top + (self._style.line if waiting else 0.0)

    def _place_card(self) -> None:
        available = round(self._column * CARD_SHARE) - 2 * CARD_PADDING_X
        height = self._stack(0, CARD_PADDING_Y, 0.0, available)
        wide = any(isinstance(part.view, CodeView) for part in self.parts)
        natural = max((part.view.natural_width for part in self.parts), default=0.0)
        width = available if wide else min(available, max(natural + 1, 12.0))
        left = self._column - width - CARD_PADDING_X
        if width < available and any(part.view.right_to_left for part in self.parts):
            self._stack(0, CARD_PADDING_Y, 0.0, width)
        for part in self.parts:
            part.x += left
        full = width + 2 * CARD_PADDING_X
        self.card = QRectF(self._column - full, 0.0, full, height + CARD_PADDING_Y)

    def _stack(self, first: int, top: float, left: float, width: float) -> float:
        """Lay out the parts from `first` on from top to bottom; returns the y of their end."""
        y = top
        if first:
            before = self.parts[first - 1]
            y = before.y + before.view.height
        del self._ys[first:]
        for index in range(first, len(self.parts)):
            part = self.parts[index]
            if index:
                y += _gap(self.parts[index - 1], part)
            inset = indent(part.path) + (18.0 if part.thought else 0.0)
            part.width = max(width - inset, 60.0)
            part.x = left + (0.0 if part.view.right_to_left else inset)
            part.y = y
            self._ys.append(y)
            y += part.view.layout(part.width)
        return y

    # --- hit testing ------------------------------------------------------------------------

    def part_at(self, y: float) -> int:
        """The index of the part nearest to `y`; -1 without parts."""
        return min(max(bisect_right(self._ys, y) - 1, 0), len(self.parts) - 1)

    def parts_between(self, top: float, bottom: float) -> Sequence[int]:
        """The indices of the parts between two y coordinates."""
        if not self.parts:
            return ()
        first = self.part_at(top)
        return range(first, bisect_right(self._ys, bottom))

    def hover_bands(self) -> list[tuple[float, float]]:
        """The y ranges whose painting depends on the mouse position."""
        bands = [
            (part.y, part.y + CODE_HEADER) for part in self.parts if isinstance(part.view, CodeView)
        ]
        return [(0.0, THOUGHT_LINE), *bands] if self.has_thoughts else bands

    def thought_area(self) -> QRectF:
        """The rectangle of the line that folds the thoughts."""
        return QRectF(-8.0, 0.0, 220.0, THOUGHT_LINE) if self.has_thoughts else QRectF()

    def end_point(self) -> QPointF:
        """The position of the streaming dot, relative to the message."""
        if self.parts and not self.parts[-1].thought:
            part = self.parts[-1]
            return part.view.end_point() + QPointF(part.x, part.y)
        top = THOUGHT_LINE if self.has_thoughts else 0.0
        if self.parts and self.thinking:
            part = self.parts[-1]
            return part.view.end_point() + QPointF(part.x, part.y)
        return QPointF(0.0, top + self._style.line / 2)


def indent(path: tuple[Level, ...]) -> float:
    """The indentation of a block inside these containers, in pixels."""
    return float(sum(QUOTE_INDENT if level.quote else INDENT for level in path[:DEEPEST_INDENT]))


def _gap(before: Part, part: Part) -> float:
    """The vertical space between two parts, in pixels."""
    one, two = before.view.block, part.view.block
    place: Place = two.place
    if before.thought is not part.thought:
        return 16.0
    if place.joined:
        return 0.0
    if place.tight and not isinstance(one, Formula) and not isinstance(two, Formula):
        return 4.0
    if isinstance(two, Heading):
        return 28.0 if two.level <= 2 else 22.0
    if isinstance(one, Heading):
        return 8.0
    if isinstance(one, Formula) or isinstance(two, Formula):
        return 10.0
    if isinstance(one, Code | Table | Rule) or isinstance(two, Code | Table | Rule):
        return 14.0
    in_list = [any(not level.quote for level in part.path) for part in (before, part)]
    return 8.0 if all(in_list) else 12.0
