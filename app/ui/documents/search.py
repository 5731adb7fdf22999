"""Search field of the text of a document: time slices, so that a long text never blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app.system.text_search import normalize_query, occurrences
from app.system.translation import tr
from app.ui.blocks.text import units
from app.ui.documents.text import DocumentText, Match
from app.ui.widgets.find_row import FindRow

_SLICE = 0.006  # seconds of searching between two events
_SHOW_SECONDS = 0.1  # between two times that the matches so far are shown
_PIECE = 4000  # characters that are searched at once, up to the end of a line


class DocumentSearch(FindRow):
    """Finds a query in the text of a document."""

    def __init__(self, text: DocumentText, parent: QWidget | None = None) -> None:
        super().__init__(tr("Find in this file"), parent)
        self._text = text
        self._pieces: Iterator[tuple[int, str]] = iter(())
        self._query = ""
        self.matches: list[Match] = []
        self.current = -1
        self.searching = False
        self._next_show = 0.0
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._search_some)
        self.field.textChanged.connect(self.search)
        self._show()

    def clear(self) -> None:
        """Forget the query, for another document."""
        self.field.clear()
        self.search("")

    def search(self, query: str) -> None:
        """Find a query in the text that is shown now."""
        self._query = normalize_query(query)
        self.matches, self.current = [], -1
        self._pieces = _pieces(self._text.shown_text) if self._query else iter(())
        self.searching, self._next_show = bool(self._query), 0.0
        self._search_some()

    def step(self, *, forward: bool) -> None:
        """Go to the next or previous match; after the last comes the first."""
        if self.matches:
            step = 1 if forward else -1
            self.current = (self.current + step) % len(self.matches)
            self._show()
            self.announce()

    def _search_some(self) -> None:
        """Search for one time slice, then continue after other events."""
        until = time.perf_counter() + _SLICE
        while self.searching and time.perf_counter() < until:
            piece = next(self._pieces, None)
            if piece is None:
                self.searching = False
            else:
                at, text = piece
                found = occurrences(text, self._query)
                self.matches += [(at + start, at + end) for start, end in found]
        if self.matches and self.current < 0:
            first = self._text.first_match(self.matches)
            if first < len(self.matches):
                self.current = first
            elif not self.searching:
                self.current = 0  # all are above
        if self.searching:
            self._timer.start()
        if not self.searching or time.monotonic() > self._next_show:
            self._next_show = time.monotonic() + _SHOW_SECONDS
            self._show()

    def _show(self) -> None:
        total, place = len(self.matches), self.current + 1
        is_other = self.show_count(self._query, place, total, searching=self.searching)
        if is_other and not self.searching and place <= 1:
            self.announce()
        self._text.set_matches(self.matches, self.current)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The text in pieces that end with a line, and where each begins, in UTF-16 units."""
    start = place = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE)
        piece = text[start : end + 1 if end >= 0 else len(text)]
        yield place, piece
        start += len(piece)
        place += units(piece)
