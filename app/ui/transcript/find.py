"""Find in conversation: the matches of a query in all messages, and the current one.

Messages are searched in time slices from the visible one on, and laid out for it if they are not
yet, so that the first match shows at once and a long conversation never blocks the window.
A query of several words that occurs nowhere as it is typed finds its words one by one.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, QRectF, QTimer, Signal

from app.domain.parts import FilePart, ImagePart, search_text
from app.system.text_search import contains, normalize_query, occurrences, query_terms
from app.ui.blocks.code import CodeView
from app.ui.blocks.formula import ScrollingView
from app.ui.blocks.style import CODE_PADDING
from app.ui.blocks.text import units
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.message.placed_block import PlacedBlock

SLICE = 0.008  # seconds of searching between two events
AGAIN_MILLISECONDS = 150  # after a change of a message it is searched again


@dataclass(frozen=True, slots=True)
class Match:
    """A place of the query in a message: its part, and positions in that part."""

    part: int
    start: int
    end: int
    row: int = -1  # the folded row that hides it, above the part; -1: it is visible
    in_file: bool = False  # the text of the row's file, or the words of its picture, have it


@dataclass(frozen=True, slots=True)
class _Found:
    """The matches in one message: of the whole query, and of its words."""

    whole: Sequence[Match]
    words: Sequence[Match]


class Finder(QObject):
    """Searches the messages of a transcript, and scrolls to the current match."""

    changed = Signal()  # the matches or the current one

    def __init__(self, layout: TranscriptLayout) -> None:
        super().__init__(layout)
        self._layout = layout
        self.query = ""
        self._terms: tuple[str, ...] = ()  # the folded query, and its words if it has several
        self._found: dict[int, _Found] = {}  # by message
        self._whole = 0  # matches of the whole query
        self._pending: list[int] = []  # messages still to search, the next one last
        self._start: int | None = None  # the message where the search begins
        self._from_top = False  # at its first match, not at its first visible one
        self._current: tuple[int, int] | None = None  # message, and number of its match
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._search_some)
        self._changed_messages: set[int] = set()
        self._again = QTimer(self, singleShot=True, interval=AGAIN_MILLISECONDS)
        self._again.timeout.connect(self._search_changed)

    # --- what the bar shows ---------------------------------------------------------------------

    @property
    def searching(self) -> bool:
        """Whether some messages have not been searched yet."""
        return bool(self._pending)

    @property
    def total(self) -> int:
        """The number of matches found so far."""
        return sum(len(self._matches(message)) for message in self._found)

    @property
    def place(self) -> int:
        """The number of the current match, counted from 1 at the top; 0: none."""
        if self._current is None:
            return 0
        message, number = self._current
        before = 0
        for view in self._layout.stack.views:
            if view.message.id == message:
                break
            before += len(self._matches(view.message.id))
        return before + number + 1

    @property
    def separate_words(self) -> bool:
        """Whether the words of the query are found one by one, because it occurs nowhere."""
        return len(self._terms) > 1 and not self._whole and not self._pending

    def _matches(self, message: int) -> Sequence[Match]:
        found = self._found.get(message)
        if found is None:
            return ()
        return found.words if self.separate_words else found.whole

    def in_message(self, message: int) -> tuple[Sequence[Match], Match | None]:
        """The matches in a message in text order, and the current one if it is among them."""
        if not self._found:
            return (), None
        matches = self._matches(message)
        if self._current is None or self._current[0] != message or not matches:
            return matches, None
        return matches, matches[self._current[1]]

    # --- searching ------------------------------------------------------------------------------

    def search(self, query: str, message: int | None = None) -> None:
        """Find a query; the current match is the first one at or below the visible place, or
        else the next one above it; with `message`, the first one of that message.
        """
        folded = normalize_query(query)
        words = sorted(set(query_terms(query)), key=len, reverse=True)
        self.query = query
        separate = words if len(words) > 1 or '"' in folded else []
        self._terms = (folded, *separate) if folded else ()
        if self._current is None:
            self._start = self._first_visible()
        if message is not None:
            self._start, self._current = message, None
        self._from_top = message is not None
        self.restart()

    def restart(self) -> None:
        """Search all messages again: they were replaced, or the query was."""
        if self._current is not None:
            self._start, self._current = self._current[0], None
        self._found.clear()
        self._whole = 0
        self._pending.clear()
        if self._terms:
            self._pending = self._order()[::-1]
        self._search_some()

    def stop(self) -> None:
        """Forget the query."""
        self._timer.stop()
        self._again.stop()
        self.query, self._terms = "", ()
        self._current = self._start = None
        self._found.clear()
        self._whole = 0
        self._pending.clear()
        self._changed_messages.clear()
        self._layout.changed.emit()

    def message_changed(self, message: int) -> None:
        """Search a message again soon: its text has changed."""
        if self._terms:
            self._changed_messages.add(message)
            if not self._again.isActive():
                self._again.start()

    def _search_changed(self) -> None:
        for message in self._changed_messages:
            index = self._layout.stack.index_of(message)
            if index is not None and message not in self._pending:
                self._search_message(index)
        self._changed_messages.clear()
        self._keep_current()
        if self._current is None and not self._pending:
            self._choose_first()
        self._report()

    def _search_some(self) -> None:
        """Search messages for one time slice, then continue after other events."""
        stack, until = self._layout.stack, time.perf_counter() + SLICE
        built = False
        while self._pending:
            message = self._pending.pop()
            index = stack.index_of(message)
            if index is not None:
                if not stack.is_built(index):
                    stack.build(index)
                    built = True
                self._search_message(index)
                if self._current is None and self._found[message].whole:
                    self._choose(message)
            if time.perf_counter() > until:
                break
        if built:
            self._layout.scroller.relayout()
        if self._pending:
            self._timer.start(0)
        elif self._current is None:
            self._choose_first()
        self._report()

    def _search_message(self, index: int) -> None:
        view = self._layout.stack.views[index]
        if before := self._found.get(view.message.id):
            self._whole -= len(before.whole)
        whole = _matches_in(view, self._terms[:1])
        self._whole += len(whole)
        words = _matches_in(view, self._terms[1:])
        self._found[view.message.id] = _Found(whole, words)

    def _report(self) -> None:
        self._layout.changed.emit()
        self.changed.emit()

    # --- the current match ----------------------------------------------------------------------

    def step(self, *, forward: bool) -> None:
        """Make the next or previous match the current one; after the last comes the first."""
        self._search_changed()
        ids = [v.message.id for v in self._layout.stack.views if self._matches(v.message.id)]
        if not ids:
            return
        if self._current is None:
            self._current = (ids[0], 0) if forward else (ids[-1], -1)
        else:
            message, number = self._current
            number += 1 if forward else -1
            if not 0 <= number < len(self._matches(message)):
                message = ids[(ids.index(message) + (1 if forward else -1)) % len(ids)]
                number = 0 if forward else len(self._matches(message)) - 1
            self._current = message, number
        self.show_current()
        self._report()

    def _first_visible(self) -> int | None:
        layout = self._layout
        index = layout.stack.at(layout.offset())
        return layout.stack.views[index].message.id if index >= 0 else None

    def _choose(self, message: int) -> None:
        """Make a match of a message the current one, if it is the first in the search order.

        First come the visible place and what is below it, then what is above it, upwards.
        """
        stack, matches = self._layout.stack, self._matches(message)
        index = stack.index_of(message)
        if index is None or not matches:
            return
        start = self._start_index()
        number: int | None = 0
        if index < start:
            first = stack.views[start].message.id
            message = first if self._matches(first) else message
            number = len(self._matches(message)) - 1
        elif index == start and not self._from_top and self._layout.message_top(index) < 0:
            visible = (
                n
                for n, match in enumerate(matches)
                if match.row >= 0 or self._area(index, match).top() >= 0
            )
            number = next(visible, None)
        if number is not None:
            self._current = message, number
            self.show_current()

    def _choose_first(self) -> None:
        """Make the first match in the search order the current one."""
        order = self._order()
        for message in order:
            self._choose(message)
            if self._current is not None:
                return
        if order and (matches := self._matches(order[0])):  # all above the viewport
            self._current = order[0], len(matches) - 1
            self.show_current()

    def _start_index(self) -> int:
        index = self._layout.stack.index_of(self._start) if self._start is not None else None
        return index or 0

    def _order(self) -> list[int]:
        """The messages in search order: from the start on downwards, then upwards."""
        ids = [view.message.id for view in self._layout.stack.views]
        first = self._start_index()
        return [*ids[first:], *ids[:first][::-1]]

    def _keep_current(self) -> None:
        """Keep the number of the current match valid after its message has changed."""
        if self._current is not None:
            message, number = self._current
            count = len(self._matches(message))
            self._current = (message, min(number, count - 1)) if count else None

    def _current_match(self) -> Match | None:
        if self._current is None:
            return None
        message, number = self._current
        matches = self._matches(message)
        return matches[number] if matches else None

    def current_spots(self) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        """Start and end of the current match as places of a selection."""
        match = self._current_match()
        index = self._layout.stack.index_of(self._current[0]) if self._current else None
        if match is None or index is None or match.row >= 0:
            return None
        return (index, match.part, match.start), (index, match.part, match.end)

    def show_current(self) -> None:
        """Scroll to the current match; unfolds the part that contains it."""
        if self._current is None:
            return
        layout, stack = self._layout, self._layout.stack
        index = stack.index_of(self._current[0])
        if index is None:
            return
        match = self._current_match()
        if match is not None and match.in_file:
            self._scroll_to(lambda: self._row_area(index, match.row))
            return
        if match is not None and match.row >= 0:
            layout.toggle_row(index, match.row)
            self._search_message(index)
            self._keep_current()
            match = self._current_match()
        if match is None or match.row >= 0:
            return
        found = match
        self._scroll_to(lambda: self._area(index, found))
        part = stack.views[index].parts[match.part]
        _scroll_sideways(part, match)

    def _scroll_to(self, where: Callable[[], QRectF]) -> None:
        """Scroll to an area in viewport coordinates, unless it is visible."""
        layout = self._layout
        if any(view.streaming for view in layout.stack.views[-2:]):  # perhaps two compared answers
            layout.scroller.follow = False  # new text must not scroll the match away
        for _ in range(4):  # messages around it are laid out on the way, which moves it
            area = where()
            page = layout.page()
            if area.top() >= min(24, page / 4) and area.bottom() <= page - min(24, page / 4):
                break
            layout.scroll_to(layout.offset() + area.top() - page / 3)

    def _row_area(self, index: int, row: int) -> QRectF:
        rows = self._layout.stack.views[index].rows
        return rows[row].area.translated(0.0, self._layout.message_top(index))

    def _area(self, index: int, match: Match) -> QRectF:
        """The first rectangle of a match, in viewport coordinates."""
        part = self._layout.stack.views[index].parts[match.part]
        area = next(part.view.areas(match.start, match.end), QRectF())
        return area.translated(part.x, self._layout.message_top(index) + part.y)


def _matches_in(view: MessageView, terms: Sequence[str]) -> list[Match]:
    """The places of the terms in a message, in text order and without overlaps."""
    if not terms:
        return []
    matches: list[Match] = []
    for number, row, text in _texts(view):
        if isinstance(text, FilePart | ImagePart):
            own = text.text if isinstance(text, FilePart) else search_text((text,))
            if any(contains(own, term) for term in terms):
                matches.append(Match(number, 0, 0, row, in_file=True))
            continue
        places: list[tuple[int, int]] = []
        for term in terms:  # the longest first
            for place in occurrences(text, term):
                at = bisect_left(places, place)
                clear_before = at == 0 or places[at - 1][1] <= place[0]
                if clear_before and (at == len(places) or place[1] <= places[at][0]):
                    places.insert(at, place)
        matches += [Match(number, start, end, row) for start, end in places]
    return matches


def _texts(view: MessageView) -> Iterator[tuple[int, int, str | FilePart | ImagePart]]:
    """The texts, files and pictures of a message: part, row (-1: none), and what is searched."""
    number = 0
    rows = view.rows
    for index, row in enumerate(rows):
        while number < len(view.parts) and view.parts[number].section < row.section:
            yield from _part_text(view, number)
            number += 1
        if row.folded and row.foldable:
            yield number, index, view.sections[row.section].text
        elif (shown := row.file or row.image) is not None:
            yield number, index, shown
    for rest in range(number, len(view.parts)):
        yield from _part_text(view, rest)


def _part_text(view: MessageView, number: int) -> Iterator[tuple[int, int, str]]:
    block = view.parts[number].view
    text = block.text(0, block.length)
    if units(text) == block.length:  # a rule has a position, but no text
        yield number, -1, text


def _scroll_sideways(part: PlacedBlock, match: Match) -> None:
    """Scroll a wide block so that a match in it is visible."""
    view = part.view
    if not isinstance(view, ScrollingView) or not view.horizontal_scroll.overflows:
        return
    area = next(view.areas(match.start, match.end), QRectF())
    inset = CODE_PADDING if isinstance(view, CodeView) else 0
    scroll = view.horizontal_scroll
    if area.left() < inset or area.right() > inset + scroll.viewport_width:
        scroll.move_to(scroll.offset + area.left() - inset - scroll.viewport_width / 3)
