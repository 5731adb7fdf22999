"""Text of a document as the model reads it, with its pages, a passage and matches marked.

Places are characters of the document's own text; what is shown has borders and page marks too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QTextCursor
from PySide6.QtWidgets import QTextEdit, QWidget

from app.domain.document_prompt import Piece
from app.system.translation import tr
from app.ui.blocks.text import units
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import BODY, font
from app.ui.widgets.plain_text import PlainTextField

Match = tuple[int, int]  # places in the shown text, in UTF-16 units


class DocumentText(PlainTextField):
    """Read-only text of a document."""

    page_changed = Signal(int)  # index of the page at the top

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._pieces: Sequence[Piece] = ()
        self._starts: list[
            int
        ] = []  # of the pieces in the shown text, and its end, in UTF-16 units
        self._shown = ""
        self._unread: frozenset[int] = frozenset()
        self._passage: Match | None = None
        self._matches: Sequence[Match] = ()
        self._current = -1
        self._page = -1
        self._folds: list[int] = []  # positions of line breaks that are not in the text
        self._fold_places: list[int] = []
        self._quiet: list[Match] = []
        self.setReadOnly(True)
        self.setFrameShape(QTextEdit.Shape.NoFrame)
        self.setFont(font(BODY))
        self.setTabChangesFocus(True)
        self.setUndoRedoEnabled(False)
        flags = Qt.TextInteractionFlag
        self.setTextInteractionFlags(flags.TextSelectableByMouse | flags.TextSelectableByKeyboard)
        self.setAccessibleName(tr("Text that the model reads"))
        self.verticalScrollBar().valueChanged.connect(self._scrolled)
        follow_palette(self._recolor)

    @property
    def page(self) -> int:
        """The index of the page at the top."""
        return self._page

    @property
    def shown_text(self) -> str:
        """The whole text with its borders and page marks."""
        return self._shown

    def show_pieces(self, pieces: Sequence[Piece]) -> None:
        """Show a document from its beginning."""
        self._pieces, self._passage, self._matches, self._current = pieces, None, (), -1
        self._unread, self._page = frozenset(), -1
        self._shown = "".join(piece.text for piece in pieces)
        size = len if len(self._shown.encode("utf-16-le")) == 2 * len(self._shown) else units
        self._starts = [0, *accumulate(size(piece.text) for piece in pieces)]
        self.set_text(self._shown)
        self.document().setUndoRedoEnabled(False)
        self._folds = self.folds
        self._fold_places = [at - before for before, at in enumerate(self._folds)]
        self.moveCursor(QTextCursor.MoveOperation.Start)
        self._mark_quiet()
        self._scrolled()

    def set_unread(self, pages: Collection[int]) -> None:
        """Set the pages that the model does not read, which are faint."""
        if frozenset(pages) != self._unread:
            self._unread = frozenset(pages)
            self._mark_quiet()

    def go_to_page(self, page: int) -> None:
        """Scroll to the mark of a page."""
        at = next((n for n, piece in enumerate(self._pieces) if piece.page == page), None)
        if at is not None:
            lines = len(self._pieces[at].text) - len(self._pieces[at].text.lstrip("\n"))
            self._go_to(self._starts[at] + lines, at_top=True)

    def show_passage(self, start: int, end: int) -> None:
        """Mark the characters [start, end) of the document, and scroll to them."""
        first, last = self._place_of(start), self._place_of(end)
        self._passage = (first, max(first, last))
        self._mark()
        self._go_to(first, at_top=False)

    def forget_passage(self) -> None:
        """Mark no passage."""
        self._passage = None
        self._mark()

    def set_matches(self, matches: Sequence[Match], current: int) -> None:
        """Mark what was found, and scroll to the current match; -1: there is none."""
        moved = (matches[current] if current >= 0 else None) != self._current_match()
        self._matches, self._current = matches, current
        self._mark()
        if current >= 0 and moved:
            self._go_to(matches[current][0], at_top=False)

    def first_match(self, matches: Sequence[Match]) -> int:
        """The index of the first match at or below the top of what is visible."""
        return bisect_left(matches, (self._visible()[0],))

    def _recolor(self, palette: Palette) -> None:
        self._mark_quiet()

    def _current_match(self) -> Match | None:
        return self._matches[self._current] if 0 <= self._current < len(self._matches) else None

    def _place_of(self, character: int) -> int:
        """Where a character of the document is in the shown text, in UTF-16 units."""
        place = 0
        for piece, at in zip(self._pieces, self._starts, strict=False):
            if piece.start < 0:
                continue
            if piece.start > character:
                break
            place = at + units(piece.text[: character - piece.start])
        return place

    def _position_of(self, place: int) -> int:
        """The position in Qt's document of a place in the shown text."""
        return place + bisect_right(self._fold_places, place)

    def _go_to(self, place: int, *, at_top: bool) -> None:
        cursor = QTextCursor(self.document())
        cursor.setPosition(self._position_of(place))
        self.setTextCursor(cursor)
        bar = self.verticalScrollBar()
        self.ensureCursorVisible()
        top = self.cursorRect().top()
        line = max(self.fontMetrics().lineSpacing(), 1)
        wanted = 4 if at_top else self.viewport().height() // 4
        if at_top or not 0 <= top - line <= self.viewport().height() - 3 * line:
            bar.setValue(bar.value() + round((top - wanted) / line))

    # --- marks ----------------------------------------------------------------------------------

    def _scrolled(self) -> None:
        self._mark()
        at = min(bisect_right(self._starts, self._visible()[0]), len(self._pieces)) - 1
        page = max(self._pieces[at].page, 0) if self._pieces else 0
        if page != self._page:
            self._page = page
            self.page_changed.emit(page)

    def _mark_quiet(self) -> None:
        self._quiet = self._quiet_runs()
        self._mark()

    def _mark(self) -> None:
        """Mark what is visible: Qt takes long for the marks of a long text."""
        palette, shown = shown_palette(), self._visible()
        marks: list[QTextEdit.ExtraSelection] = []
        for at in _seen(self._quiet, shown):
            made = self._selection(self._quiet[at])
            made.format.setForeground(QColor(palette.faint))  # type: ignore[attr-defined]
            marks.append(made)
        if self._passage is not None:
            marks.append(self._filled(self._passage, palette.match))
        for at in _seen(self._matches, shown):
            color = palette.current_match if at == self._current else palette.match
            marks.append(self._filled(self._matches[at], color))
        self.setExtraSelections(marks)

    def _visible(self) -> Match:
        """About the first and last visible place, in UTF-16 units."""
        area = self.viewport().rect()
        first = self.cursorForPosition(area.topLeft()).position()
        last = self.cursorForPosition(area.bottomRight()).position()
        return first - bisect_left(self._folds, first), last - bisect_left(self._folds, last)

    def _quiet_runs(self) -> list[Match]:
        """The borders, the marks of pages, and the pages that are not read, joined."""
        runs: list[list[int]] = []
        for piece, (at, end) in zip(self._pieces, pairwise(self._starts), strict=True):
            if piece.start >= 0 and piece.page not in self._unread:
                continue
            if runs and runs[-1][1] == at:
                runs[-1][1] = end
            else:
                runs.append([at, end])
        return [(start, end) for start, end in runs]

    def _filled(self, match: Match, color: str) -> QTextEdit.ExtraSelection:
        made = self._selection(match)
        made.format.setBackground(QColor(color))  # type: ignore[attr-defined]
        return made

    def _selection(self, match: Match) -> QTextEdit.ExtraSelection:
        made = QTextEdit.ExtraSelection()
        cursor = QTextCursor(self.document())
        cursor.setPosition(self._position_of(match[0]))
        cursor.setPosition(self._position_of(match[1]), QTextCursor.MoveMode.KeepAnchor)
        made.cursor = cursor  # type: ignore[attr-defined]
        return made


def _seen(runs: Sequence[Match], shown: Match) -> range:
    """The indexes of the runs, which are in order, that may be in a part of the text."""
    first = bisect_left(runs, (shown[0],))
    return range(max(first - 1, 0), bisect_right(runs, (shown[1] + 1,)))
