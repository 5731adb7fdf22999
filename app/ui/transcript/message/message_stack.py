"""Vertical layout of a conversation's messages: their positions, and lazy message layout.

Messages outside the viewport have estimated heights, so that opening a long conversation lays out
one screen only; the others are laid out in time slices when the event loop is idle.

Two compared answers follow one another in the order of the messages, and are drawn side by side;
where the columns would be too narrow, one is below the other.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from PySide6.QtGui import QGuiApplication

from app.domain.documents import Passage
from app.domain.message import Message
from app.domain.passages import cited
from app.ui.blocks.code import CodeView
from app.ui.blocks.style import ReadingStyle
from app.ui.transcript import column_header, memory_line
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.message.tool_call import NOTHING_KNOWN, KnownCalls

TOP, FOOT = 24.0, 16.0  # pixels above the first message and below the last
COLUMN_GAP = 40.0  # pixels between two compared answers
NARROWEST = 320.0  # pixels: narrower columns are placed one below the other
WIDEST = 560.0  # pixels: maximum width of each of two columns
_WORTHWHILE = 80.0  # pixels by which two columns together are wider than the text column, or not


class MessageListLayout:
    """The message views in order, with their vertical positions in content coordinates."""

    def __init__(self, style: ReadingStyle, highlight_later: Callable[[CodeView], None]) -> None:
        self.views: list[MessageView] = []
        self.column = 600.0
        self.room: float = 600.0  # width that two columns may take, at least `column`
        self.height = TOP + FOOT
        self.calls_of: Callable[[int], KnownCalls] = lambda message: NOTHING_KNOWN
        self._memory_start: int | None = None
        self._style = style
        self._highlight_later = highlight_later
        self._tops: list[float] = []
        self._index: dict[int, int] = {}
        self._stale_from: int | None = None  # positions from this message on are out of date
        self._unbuilt = 0  # lower indices may not be laid out at this column width
        self._compared: dict[int, int] = {}  # first and second of two compared answers
        self._seconds: frozenset[int] = frozenset()  # the second ones

    def __len__(self) -> int:
        return len(self.views)

    # --- content ----------------------------------------------------------------------------

    def set(
        self, messages: Sequence[Message], compared: Mapping[int, Message] | None = None
    ) -> int:
        """Replace the messages, reusing views; returns the number of unchanged leading messages.

        `compared` has the second answer of each comparison, by the id of the first.
        """
        found = compared or {}
        pairs = {each.id: found[each.id] for each in messages if each.id in found}
        if pairs:
            messages = [
                each
                for message in messages
                for each in (message, pairs.get(message.id))
                if each is not None
            ]
        self._compared = {first: second.id for first, second in pairs.items()}
        self._seconds = frozenset(self._compared.values())
        before = {view.message.id: view for view in self.views}
        kept = 0
        for view, message in zip(self.views, messages, strict=False):
            if view.message.id != message.id:
                break
            kept += 1
        self.views = [self._view(message, before.get(message.id)) for message in messages]
        self.pass_on()
        self._renumber()
        return kept

    def _view(self, message: Message, view: MessageView | None) -> MessageView:
        if view is None:
            view = MessageView(message, self._style, self._highlight_later)
            view.calls = self.calls_of(message.id)
            view.height = view.guess(self._width(message.id))
        elif view.message != message:
            view.update(message)
        return view

    def pass_on(self, first: int = 0) -> None:
        """Tell the answers from an index on which passages they may refer to."""
        known: Mapping[int, Passage] = self.views[first - 1].passages if first else {}
        before = self.views[first - 1].message if first else None
        for view in self.views[first:]:
            known = cited(known, before) if before else known
            view.set_passages(known)
            before = view.message

    def append(self, message: Message) -> None:
        """Append a message."""
        self.views.append(self._view(message, None))
        self.pass_on(len(self.views) - 1)
        self._index[message.id] = len(self.views) - 1
        self._tops.append(self.height - FOOT)
        self.height += self.views[-1].height

    def remove(self, message_id: int) -> int | None:
        """Remove a message, with the second answer of its comparison; returns its index, or None."""
        index = self._index.get(message_id)
        if index is not None:
            gone = {message_id, self._compared.get(message_id, message_id)}
            self.views = [view for view in self.views if view.message.id not in gone]
            left = [each for each in self._compared.items() if message_id not in each]
            self._compared = dict(left)
            self._seconds = frozenset(self._compared.values())
            self._renumber()
        return index

    def restyle(self, style: ReadingStyle) -> None:
        """Rebuild all views in another style, with the old heights as estimates."""
        self._style = style
        views = self.views
        self.views = []
        for old in views:
            new = MessageView(old.message, style, self._highlight_later)
            new.height, new.unfolded, new.note = old.height, old.unfolded, old.note
            new.passages, new.left_out = old.passages, old.left_out
            new.calls = old.calls
            new.cards.copy(old.cards)
            new.copy_thinking_times(old)
            self.views.append(new)
        self._unbuilt = len(self.views)
        if self._compared:
            self.refresh(0)  # the height of their headers

    def _renumber(self) -> None:
        self._index = {view.message.id: index for index, view in enumerate(self.views)}
        self._unbuilt = len(self.views)
        self.refresh(0)

    def index_of(self, message_id: int) -> int | None:
        """The index of a message, or None."""
        return self._index.get(message_id)

    # --- columns ----------------------------------------------------------------------------

    @property
    def compared(self) -> Mapping[int, int]:
        """The id of the second of two compared answers, by that of the first."""
        return self._compared

    @property
    def side_by_side(self) -> bool:
        """Whether two compared answers are beside one another."""
        return (self.room - COLUMN_GAP) / 2 >= NARROWEST

    def place_in_pair(self, index: int) -> int:
        """1 or 2 for the first or second of two compared answers; 0 for any other message."""
        number = self.views[index].message.id
        return 2 if number in self._seconds else int(number in self._compared)

    def width(self, index: int) -> float:
        """The width of a message's column."""
        return self._width(self.views[index].message.id)

    def left(self, index: int) -> float:
        """The left edge of a message's column, relative to that of the text column."""
        place = self.place_in_pair(index)
        if not place or not self.side_by_side:
            return 0.0
        width = self.width(index)
        first = (self.column - 2 * width - COLUMN_GAP) // 2
        at_left = (place == 1) is not QGuiApplication.isRightToLeft()
        return first if at_left else first + width + COLUMN_GAP

    def _width(self, message_id: int) -> float:
        paired = message_id in self._seconds or message_id in self._compared
        if not paired or not self.side_by_side:
            return self.column
        return min((self.room - COLUMN_GAP) // 2, WIDEST)

    # --- positions --------------------------------------------------------------------------

    def refresh(self, first: int) -> None:
        """Recompute the positions of the messages from `first` on."""
        first = first if self._stale_from is None else min(first, self._stale_from)
        self._stale_from = None
        if first < len(self.views) and self.place_in_pair(first) == 2:
            first -= 1
        y = self._end(first - 1) if first else TOP
        del self._tops[first:]
        for index in range(first, len(self.views)):
            view, place = self.views[index], self.place_in_pair(index)
            if place == 1 and self.side_by_side:
                self._align_tools(index)
            elif view.end_beside and not (place and self.side_by_side):
                view.place_tools()
            if view.message.id == self._memory_start:
                y += memory_line.HEIGHT
            if place:
                y += column_header.height(self._style)
            if place == 2 and self.side_by_side:
                y = self._tops[index - 1]
            self._tops.append(y)
            y = self._end(index)
        self.height = y + FOOT

    def _align_tools(self, first: int) -> None:
        """Place the tool rows of two answers side by side at one height, below the longer one.

        Where the pair ends, both answers can be kept, however short one of them is.
        """
        one, other = self.views[first : first + 2]
        built = one.built and other.built
        one.place_tools(other.content_end if built else 0.0)
        other.place_tools(one.content_end if built else 0.0)

    def _end(self, index: int) -> float:
        """The y coordinate where the message after this one can begin."""
        end = self._tops[index] + self.views[index].height
        if self.place_in_pair(index) == 2:
            end = max(end, self._tops[index - 1] + self.views[index - 1].height)
        return end

    def set_memory_start(self, message_id: int | None) -> bool:
        """Set the message with the memory line above it; returns whether that changed."""
        if message_id == self._memory_start:
            return False
        self._memory_start = message_id
        self.refresh(0)
        return True

    @property
    def memory_line(self) -> int | None:
        """The index of the message with the memory line above it, or None."""
        return None if self._memory_start is None else self._index.get(self._memory_start)

    def catch_up(self) -> None:
        """Recompute the positions left out of date by `build_some`."""
        if self._stale_from is not None:
            self.refresh(self._stale_from)

    def top(self, index: int) -> float:
        """The y coordinate of a message's top, in content coordinates."""
        return self._tops[index]

    def at(self, y: float, x: float = 0.0) -> int:
        """The index of the message nearest to a point, `x` from the text column's left edge.

        Returns -1 without messages.
        """
        index = min(max(bisect_right(self._tops, y) - 1, 0), len(self.views) - 1)
        if index > 0 and self.side_by_side and self.place_in_pair(index) == 2:
            return index if x >= self.left(index) - COLUMN_GAP / 2 else index - 1
        return index

    def between(self, top: float, bottom: float) -> range:
        """The indices of the messages between two y coordinates."""
        if not self.views:
            return range(0)
        return range(self.at(top), bisect_right(self._tops, bottom))

    # --- building ---------------------------------------------------------------------------

    def is_built(self, index: int) -> bool:
        """Whether a message is laid out for the current column width."""
        return self.views[index].built_for(self.width(index))

    def set_column(self, width: float, room: float = 0.0) -> None:
        """Set the column width; old heights remain as estimates until the messages are laid out.

        `room` is the width that two compared answers may take together.
        """
        room = room if room >= width + _WORTHWHILE else width
        if width != self.column or (room != self.room and self._compared):
            self.column, self.room = width, room
            self._unbuilt = len(self.views)
            if self._compared:
                self.refresh(0)
        self.room = room

    def build_between(self, top: float, bottom: float) -> bool:
        """Lay out the first unbuilt message between two y coordinates; False if there is none."""
        for index in self.between(top, bottom):
            if not self.is_built(index):
                self.views[index].build(self.width(index))
                self.refresh(index)
                return True
        return False

    def build(self, index: int) -> None:
        """Lay out one message; the positions after it are not updated until `catch_up`."""
        self.views[index].build(self.width(index))
        stale = self._stale_from
        self._stale_from = index if stale is None else min(index, stale)

    def build_some(self, seconds: float) -> bool:
        """Lay out messages for about `seconds`, last first; returns whether any are left.

        Positions are not updated until `catch_up`, so the visible messages do not move.
        """
        until = time.perf_counter() + seconds
        self._unbuilt = min(self._unbuilt, len(self.views))
        while self._unbuilt > 0 and time.perf_counter() < until:
            self._unbuilt -= 1
            if not self.is_built(self._unbuilt):
                self.build(self._unbuilt)
        return self._unbuilt > 0
