"""One message as it is laid out: its blocks, what stands around them, and its row of tools.

A message is read and laid out only when it is about to be seen or there is time to spare; until
then its height is a guess. While it streams, only what changed is laid out again.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QPointF, QRectF

from app.markdown.blocks import Block, Code, Heading, Level, Paragraph, Place, Rule, Run, Table
from app.markdown.stream import OwnText, Reply, Stream
from app.store.store import Message, MessageState
from app.ui.blocks.blocks import BlockView, RuleView, TextView
from app.ui.blocks.code import CodeView
from app.ui.blocks.style import CODE_HEADER, DEEPEST_INDENT, INDENT, QUOTE_INDENT, ReadingStyle
from app.ui.blocks.table import TableView
from app.ui.blocks.text import Flow
from app.ui.transcript.message_tools import ROW
from engine import Role

CARD_SHARE = 0.85  # of the column, the widest an own message gets
CARD_ACROSS, CARD_DOWN = 16.0, 11.0  # pixels inside the card of an own message
THOUGHT_LINE = 28.0
_BELOW_THOUGHTS = 8.0
_AFTER = {Role.USER: 8.0, Role.ASSISTANT: 20.0, Role.SYSTEM: 12.0}  # pixels to the next message


@dataclass(slots=True)
class Part:
    """A block in its place; coordinates are relative to the message."""

    view: BlockView
    path: tuple[Level, ...]
    thought: bool
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0


class MessageView:
    """One message, laid out for a column."""

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
        self.changed_from = 0.0  # where drawing changed with the last feed
        self._style = style
        self._highlight_later = highlight_later
        self._column = 0.0
        self._reply: Reply | None = None
        self._own: OwnText | None = None
        self._body: list[Block] = []
        self._ys: list[float] = []
        self._thinking_since = 0.0
        self._thought_seconds = 0.0

    def take_times(self, other: MessageView) -> None:
        """Take over what another view of the message knows of the time it took to think."""
        self._thinking_since = other._thinking_since
        self._thought_seconds = other._thought_seconds

    # --- content ----------------------------------------------------------------------------

    @property
    def own(self) -> bool:
        """Whether the person wrote it."""
        return self.message.role is Role.USER

    @property
    def streaming(self) -> bool:
        """Whether more text is on its way."""
        return self.message.state is MessageState.STREAMING

    @property
    def thinking(self) -> bool:
        """Whether the model is still thinking."""
        return self._reply is not None and self._reply.thinking and self.streaming

    @property
    def has_thoughts(self) -> bool:
        """Whether there is a line that unfolds the thoughts."""
        return self._reply is not None and self._reply.has_thoughts

    def thought_words(self) -> str:
        """The words of the line that unfolds the thoughts."""
        if self.thinking:
            return "Thinking…"
        seconds = self._thought_seconds
        if seconds < 0.5:
            return "Thought"
        if seconds < 60:
            return f"Thought for {max(round(seconds), 1)} s"
        return f"Thought for {int(seconds // 60)} min {round(seconds % 60)} s"

    def source(self, first: int, last: int) -> str:
        """The markdown of the parts from `first` to `last`, as it was written."""
        pieces: list[str] = []
        for thought in (True, False):
            inside = [p for p in self.parts[first : last + 1] if p.thought is thought]
            stream = self._stream(thought=thought)
            if inside and stream:
                pieces.append(
                    stream.source(inside[0].view.block.place.start, inside[-1].view.block.place.end)
                )
        return "\n\n".join(pieces).strip("\n")

    def _stream(self, *, thought: bool) -> Stream | OwnText | None:
        if self._reply:
            return self._reply.thoughts if thought else self._reply.body
        return self._own

    # --- building ---------------------------------------------------------------------------

    def built_for(self, column: float) -> bool:
        """Whether it is laid out for a column of this width."""
        return self.built and self._column == column

    def build(self, column: float) -> None:
        """Read and lay out the message, if that is not done yet for this column."""
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
        """Take more of a streaming answer; costs what the unfinished tail costs."""
        self.message = replace(self.message, text=self.message.text + text)
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
        """Bring the parts in line with the blocks, the first `kept` of which are as they were."""
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
            if part is None or part.thought is not thought or not self._takes_over(part, block):
                if part:
                    self.changed_from = min(self.changed_from, part.y - 30)
                part = Part(self._make(block), block.place.path, thought)
                self.parts[index : index + 1] = [part]
        if len(self.parts) > count:
            del self.parts[count:]
            changed = min(changed, count)
        if self.built and (changed < count or len(self._ys) != count):
            self._place(changed)

    def _takes_over(self, part: Part, block: Block) -> bool:
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
            case Paragraph() | Heading():
                return TextView(block, self._style)

    def fold(self, folded: bool) -> None:
        """Hide or show the thoughts."""
        self.folded = folded
        self.parts.clear()
        self._sync(0)
        self.layout()

    def update(self, message: Message) -> None:
        """Take over a later state of the message."""
        before, self.message = self.message, message
        if not self.built:
            return
        goes_on = message.text.startswith(before.text)
        if self._reply and goes_on and before.state is MessageState.STREAMING:
            self._feed(message.text[len(before.text) :], last=not self.streaming)
        elif message.text != before.text or self.streaming:
            self.parts.clear()
            self._reply = self._own = None
            self._read()
        self.layout()

    # --- layout -----------------------------------------------------------------------------

    def guess(self, column: float) -> float:
        """About how high it will be."""
        text = self.message.text
        width = column * (CARD_SHARE if self.own else 1.0)
        lines = len(text) * 7.4 / max(width, 100.0) + text.count("\n") * 0.6 + 1
        return round(lines * self._style.line + ROW + _AFTER[self.message.role])

    def layout(self) -> None:
        """Lay out everything for the column."""
        self._place(0)

    def _place(self, first: int) -> None:
        """Lay out the parts from `first` on, then what stands below them."""
        if self.own:
            self._place_card()
        else:
            top = THOUGHT_LINE if self.has_thoughts else 0.0
            if self.folded and self.has_thoughts:
                top += _BELOW_THOUGHTS
            self._stack(first, top, 0.0, self._column)
        bottom = self.bottom()
        self.error = None
        if self.message.state is MessageState.FAILED and self.message.error:
            style = self._style
            self.error = Flow((Run(self.message.error),), style, style.note_face)
            self.error.layout(self._column)
            bottom += self.error.height + (8 if self.parts else 0)
        self.tools_top = bottom + 4
        self.height = self.tools_top + ROW + _AFTER[self.message.role]

    def bottom(self) -> float:
        """Where the text (or what stands in its place) ends."""
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
        room = round(self._column * CARD_SHARE) - 2 * CARD_ACROSS
        height = self._stack(0, CARD_DOWN, 0.0, room)
        wide = any(isinstance(part.view, CodeView) for part in self.parts)
        natural = max((part.view.natural_width for part in self.parts), default=0.0)
        width = room if wide else min(room, max(natural + 1, 12.0))
        left = self._column - width - CARD_ACROSS
        if width < room and any(part.view.right_to_left for part in self.parts):
            self._stack(0, CARD_DOWN, 0.0, width)
        for part in self.parts:
            part.x += left
        full = width + 2 * CARD_ACROSS
        self.card = QRectF(self._column - full, 0.0, full, height + CARD_DOWN)

    def _stack(self, first: int, top: float, left: float, width: float) -> float:
        """Put the parts from `first` on under each other; returns where they end."""
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

    # --- finding ----------------------------------------------------------------------------

    def part_at(self, y: float) -> int:
        """The part nearest to a height; -1 when there is none."""
        return min(max(bisect_right(self._ys, y) - 1, 0), len(self.parts) - 1)

    def parts_between(self, top: float, bottom: float) -> Sequence[int]:
        """The parts that can be seen between two heights."""
        if not self.parts:
            return ()
        first = self.part_at(top)
        return range(first, bisect_right(self._ys, bottom))

    def hover_bands(self) -> list[tuple[float, float]]:
        """The heights between which drawing depends on where the mouse is."""
        bands = [
            (part.y, part.y + CODE_HEADER) for part in self.parts if isinstance(part.view, CodeView)
        ]
        return [(0.0, THOUGHT_LINE), *bands] if self.has_thoughts else bands

    def thought_area(self) -> QRectF:
        """Where the line that unfolds the thoughts is."""
        return QRectF(-8.0, 0.0, 220.0, THOUGHT_LINE) if self.has_thoughts else QRectF()

    def end_point(self) -> QPointF:
        """Where the dot of a streaming answer stands, relative to the message."""
        if self.parts and not self.parts[-1].thought:
            part = self.parts[-1]
            return part.view.end_point() + QPointF(part.x, part.y)
        top = THOUGHT_LINE if self.has_thoughts else 0.0
        if self.parts and self.thinking:
            part = self.parts[-1]
            return part.view.end_point() + QPointF(part.x, part.y)
        return QPointF(0.0, top + self._style.line / 2)


def indent(path: tuple[Level, ...]) -> float:
    """How far a block with these containers stands in."""
    return float(sum(QUOTE_INDENT if level.quote else INDENT for level in path[:DEEPEST_INDENT]))


def _gap(before: Part, part: Part) -> float:
    """The space between two parts."""
    one, two = before.view.block, part.view.block
    place: Place = two.place
    if before.thought is not part.thought:
        return 16.0
    if place.joined:
        return 0.0
    if place.tight:
        return 4.0
    if isinstance(two, Heading):
        return 28.0 if two.level <= 2 else 22.0
    if isinstance(one, Heading):
        return 8.0
    if isinstance(one, Code | Table | Rule) or isinstance(two, Code | Table | Rule):
        return 14.0
    in_list = [any(not level.quote for level in part.path) for part in (before, part)]
    return 8.0 if all(in_list) else 12.0
