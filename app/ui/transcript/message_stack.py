"""The messages of a conversation, one under the other: where each begins, which can be seen.

Heights come from laid out messages where there are any and from guesses elsewhere, so that opening
a long conversation costs one screen; the rest is laid out bit by bit when there is time.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from app.store.store import Message
from app.ui.blocks.code import CodeView
from app.ui.blocks.style import ReadingStyle
from app.ui.transcript.message_view import MessageView

TOP, FOOT = 24.0, 16.0  # pixels above the first message and below the last


class MessageStack:
    """Messages in order, each with its place."""

    def __init__(self, style: ReadingStyle, highlight_later: Callable[[CodeView], None]) -> None:
        self.views: list[MessageView] = []
        self.column = 600.0
        self.height = TOP + FOOT
        self._style = style
        self._highlight_later = highlight_later
        self._tops: list[float] = []
        self._index: dict[int, int] = {}
        self._stale: int | None = None  # from this message on, places do not fit the heights yet
        self._unbuilt = 0  # messages above this index may not be laid out for this column

    def __len__(self) -> int:
        return len(self.views)

    # --- content ----------------------------------------------------------------------------

    def set(self, messages: Sequence[Message]) -> int:
        """Show these messages; views of the same message stay. Returns how many stayed in place."""
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
        """Put a message under the last one."""
        self.views.append(self._view(message, None))
        self._index[message.id] = len(self.views) - 1
        self._tops.append(self.height - FOOT)
        self.height += self.views[-1].height

    def remove(self, message_id: int) -> int | None:
        """Take a message out; returns where it was."""
        index = self._index.get(message_id)
        if index is not None:
            del self.views[index]
            self._renumber()
        return index

    def restyle(self, style: ReadingStyle) -> None:
        """Begin again in another style, at the heights there are."""
        self._style = style
        views = self.views
        self.views = []
        for old in views:
            new = MessageView(old.message, style, self._highlight_later)
            new.height, new.folded, new.note = old.height, old.folded, old.note
            new.take_times(old)
            self.views.append(new)
        self._unbuilt = len(self.views)

    def _renumber(self) -> None:
        self._index = {view.message.id: index for index, view in enumerate(self.views)}
        self._unbuilt = len(self.views)
        self.refresh(0)

    def index_of(self, message_id: int) -> int | None:
        """The index of a message, or None."""
        return self._index.get(message_id)

    # --- places -----------------------------------------------------------------------------

    def refresh(self, first: int) -> None:
        """Find the places of the messages from `first` on again."""
        first = first if self._stale is None else min(first, self._stale)
        self._stale = None
        y = self._tops[first - 1] + self.views[first - 1].height if first else TOP
        del self._tops[first:]
        for view in self.views[first:]:
            self._tops.append(y)
            y += view.height
        self.height = y + FOOT

    def catch_up(self) -> None:
        """Find the places again after `build_some`."""
        if self._stale is not None:
            self.refresh(self._stale)

    def top(self, index: int) -> float:
        """Where a message begins."""
        return self._tops[index]

    def at(self, y: float) -> int:
        """The message nearest to a height; -1 when there are none."""
        return min(max(bisect_right(self._tops, y) - 1, 0), len(self.views) - 1)

    def between(self, top: float, bottom: float) -> range:
        """The messages that can be seen between two heights."""
        if not self.views:
            return range(0)
        return range(self.at(top), bisect_right(self._tops, bottom))

    # --- building ---------------------------------------------------------------------------

    def is_built(self, index: int) -> bool:
        """Whether a message is laid out for the present column."""
        return self.views[index].built_for(self.column)

    def set_column(self, width: float) -> None:
        """Lay out for another width from now on; heights stay until then."""
        if width != self.column:
            self.column = width
            self._unbuilt = len(self.views)

    def build_between(self, top: float, bottom: float) -> bool:
        """Lay out one message that can be seen and is not yet; whether there was one."""
        for index in self.between(top, bottom):
            if not self.is_built(index):
                self.views[index].build(self.column)
                self.refresh(index)
                return True
        return False

    def build_some(self, seconds: float) -> bool:
        """Lay out messages, the last first, for about so long; whether any are left.

        Their places are found by `catch_up`: until then what is in sight stays where it is.
        """
        until = time.perf_counter() + seconds
        self._unbuilt = min(self._unbuilt, len(self.views))
        while self._unbuilt > 0 and time.perf_counter() < until:
            self._unbuilt -= 1
            if not self.is_built(self._unbuilt):
                self.views[self._unbuilt].build(self.column)
                self._stale = self._unbuilt
        return self._unbuilt > 0
