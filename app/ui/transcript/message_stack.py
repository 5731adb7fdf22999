"""Vertical layout of a conversation's messages: their positions, and lazy message layout.

Messages outside the viewport have estimated heights, so that opening a long conversation lays out
one screen only; the others are laid out in time slices when the event loop is idle.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from app.store.store import Message
from app.ui.blocks.code import CodeView
from app.ui.blocks.style import ReadingStyle
from app.ui.transcript import memory_line
from app.ui.transcript.message_view import MessageView

TOP, FOOT = 24.0, 16.0  # pixels above the first message and below the last


class MessageStack:
    """The message views in order, with their vertical positions in content coordinates."""

    def __init__(self, style: ReadingStyle, highlight_later: Callable[[CodeView], None]) -> None:
        self.views: list[MessageView] = []
        self.column = 600.0
        self.height = TOP + FOOT
        self._memory_start: int | None = None
        self._style = style
        self._highlight_later = highlight_later
        self._tops: list[float] = []
        self._index: dict[int, int] = {}
        self._stale_from: int | None = None  # positions from this message on are out of date
        self._unbuilt = 0  # lower indices may not be laid out at this column width

    def __len__(self) -> int:
        return len(self.views)

    # --- content ----------------------------------------------------------------------------

    def set(self, messages: Sequence[Message]) -> int:
        """Replace the messages, reusing views; returns the number of unchanged leading messages."""
        before = {view.message.id: view for view in self.views}
        kept = 0
        for view, message in zip(self.views, messages, strict=False):
            if view.message.id != message.id:
                break
            kept += 1
        self.views = [self._view(message, before.get(message.id)) for message in messages]
        self._renumber()
        return kept

    def _view(self, message: Message, view: MessageView | None) -> MessageView:
        if view is None:
            view = MessageView(message, self._style, self._highlight_later)
            view.height = view.guess(self.column)
        elif view.message != message:
            view.update(message)
        return view

    def append(self, message: Message) -> None:
        """Append a message."""
        self.views.append(self._view(message, None))
        self._index[message.id] = len(self.views) - 1
        self._tops.append(self.height - FOOT)
        self.height += self.views[-1].height

    def remove(self, message_id: int) -> int | None:
        """Remove a message; returns its index, or None."""
        index = self._index.get(message_id)
        if index is not None:
            del self.views[index]
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
            new.copy_thinking_times(old)
            self.views.append(new)
        self._unbuilt = len(self.views)

    def _renumber(self) -> None:
        self._index = {view.message.id: index for index, view in enumerate(self.views)}
        self._unbuilt = len(self.views)
        self.refresh(0)

    def index_of(self, message_id: int) -> int | None:
        """The index of a message, or None."""
        return self._index.get(message_id)

    # --- positions --------------------------------------------------------------------------

    def refresh(self, first: int) -> None:
        """Recompute the positions of the messages from `first` on."""
        first = first if self._stale_from is None else min(first, self._stale_from)
        self._stale_from = None
        y = self._tops[first - 1] + self.views[first - 1].height if first else TOP
        del self._tops[first:]
        for view in self.views[first:]:
            if view.message.id == self._memory_start:
                y += memory_line.HEIGHT
            self._tops.append(y)
            y += view.height
        self.height = y + FOOT

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

    def at(self, y: float) -> int:
        """The index of the message nearest to `y`; -1 without messages."""
        return min(max(bisect_right(self._tops, y) - 1, 0), len(self.views) - 1)

    def between(self, top: float, bottom: float) -> range:
        """The indices of the messages between two y coordinates."""
        if not self.views:
            return range(0)
        return range(self.at(top), bisect_right(self._tops, bottom))

    # --- building ---------------------------------------------------------------------------

    def is_built(self, index: int) -> bool:
        """Whether a message is laid out for the current column width."""
        return self.views[index].built_for(self.column)

    def set_column(self, width: float) -> None:
        """Set the column width; old heights remain as estimates until the messages are laid out."""
        if width != self.column:
            self.column = width
            self._unbuilt = len(self.views)

    def build_between(self, top: float, bottom: float) -> bool:
        """Lay out the first unbuilt message between two y coordinates; False if there is none."""
        for index in self.between(top, bottom):
            if not self.is_built(index):
                self.views[index].build(self.column)
                self.refresh(index)
                return True
        return False

    def build(self, index: int) -> None:
        """Lay out one message; the positions after it are not updated until `catch_up`."""
        self.views[index].build(self.column)
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
