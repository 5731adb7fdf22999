"""A table: hairlines between rows, columns as wide as their words, sideways scrolling when needed.

Rows are cells of flowing text placed by this view, so a row that streams in is laid out alone. The
widths of the columns come from the first `SETTLED` rows and then stay.
"""

from __future__ import annotations

from bisect import bisect_right

from PySide6.QtCore import QPointF, QRectF

from app.markdown.blocks import Block, Run, Runs, Table
from app.ui.blocks.blocks import Canvas
from app.ui.blocks.scrolling import GRIP, Sideways
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.text import Flow, Link, cut, word_around

SETTLED = 40  # rows
NARROWEST = 64.0  # pixels of text a column keeps when the table does not fit
EASY = 180.0  # pixels a column gets when the table scrolls
LONGEST_WORD = 200.0  # pixels up to which a word is not broken
_ACROSS, _DOWN = 24.0, 8.0  # pixels between cells and above and below their text


class TableView:
    """One table, laid out; a position is a character of the cells, each followed by one more."""

    def __init__(self, block: Table, style: ReadingStyle) -> None:
        self.block: Block = block
        self.height = 0.0
        self.right_to_left = False
        self.changed_from = 0.0  # where drawing changed with the last update
        self.sideways = Sideways()
        self._table = block
        self._style = style
        self._width = 0.0
        self._columns = len(block.header)
        self._natural = [0.0] * self._columns
        self._words = [NARROWEST] * self._columns
        self._widths: list[float] = []
        self._rows: list[list[Flow]] = []
        self._sources: list[tuple[Runs, ...]] = []
        self._tops: list[float] = []
        self._starts: list[int] = []  # position each cell begins at, row by row
        self._end = 0
        for row in (block.header, *block.rows):
            self._add(row)

    # --- content ----------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """How many positions the table has."""
        return max(self._end - 1, 0)

    @property
    def natural_width(self) -> float:
        """How wide the table is."""
        return sum(self._widths)

    def _add(self, row: tuple[Runs, ...]) -> None:
        style = self._style
        header = not self._rows
        cells: list[Flow] = []
        for column, runs in enumerate(row[: self._columns]):
            if header:
                runs = tuple(
                    Run(run.text, True, run.italic, run.strike, run.code, run.link) for run in runs
                )
            align = self._table.alignments[column]
            cell = Flow(runs, style, style.cell_face, align=align)
            if len(self._rows) <= SETTLED:
                cell.layout(1e5)
                self._natural[column] = max(self._natural[column], cell.natural_width)
                word = min(cell.widest_word, LONGEST_WORD)
                self._words[column] = max(self._words[column], word)
            self._starts.append(self._end)
            self._end += cell.length + 1
            cells.append(cell)
        self._rows.append(cells)
        self._sources.append(row)

    def update(self, block: Block) -> bool:
        """Take over more rows; False when the columns are others."""
        if not isinstance(block, Table):
            return False
        if block.header != self._table.header or block.alignments != self._table.alignments:
            return False
        rows = (block.header, *block.rows)
        kept = len(self._rows)
        # The last row may still have been written; those above it have not changed.
        while kept > 1 and (kept > len(rows) or self._sources[kept - 1] != rows[kept - 1]):
            kept -= 1
        self._drop(kept)
        self.block = self._table = block
        for row in rows[kept:]:
            self._add(row)
        self._place(kept)
        return True

    def _drop(self, kept: int) -> None:
        if kept < len(self._rows):
            self._end = self._starts[kept * self._columns]
            del self._rows[kept:], self._sources[kept:], self._starts[kept * self._columns :]

    # --- layout -----------------------------------------------------------------------------

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        self._place(0)
        return self.height

    def _place(self, first: int) -> None:
        """Lay out the rows from `first` on, or all where the columns changed."""
        widths = self._column_widths()
        if widths != self._widths:
            self._widths, first = widths, 0
        self.changed_from = self._tops[first - 1] if first else 0.0
        self.sideways.fit(sum(widths), self._width)
        del self._tops[first:]
        y = self._tops[-1] + self._row_height(first - 1) if first else 0.0
        for row in self._rows[first:]:
            self._tops.append(y)
            heights = [
                cell.layout(width - _ACROSS) for cell, width in zip(row, widths, strict=False)
            ]
            y += max(heights, default=self._style.line) + 2 * _DOWN + 1
        self.height = y + (GRIP if self.sideways.overflows else 0)

    def _row_height(self, row: int) -> float:
        return (
            max((cell.height for cell in self._rows[row]), default=self._style.line) + 2 * _DOWN + 1
        )

    def _column_widths(self) -> list[float]:
        """As wide as the lines where they fit, else no narrower than a word, and the rest shared."""
        natural = [width + _ACROSS + 1 for width in self._natural]
        if sum(natural) <= self._width:
            return natural
        least = [
            min(width, word + _ACROSS + 1) for width, word in zip(natural, self._words, strict=True)
        ]
        spare = self._width - sum(least)
        if spare <= 0:  # it scrolls anyway, so every column may be easy to read
            return [max(low, min(width, EASY)) for low, width in zip(least, natural, strict=True)]
        wanted = [width - low for width, low in zip(natural, least, strict=True)]
        return [low + spare * want / sum(wanted) for low, want in zip(least, wanted, strict=True)]

    # --- painting ---------------------------------------------------------------------------

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Draw the rows inside the clip."""
        painter, style = canvas.painter, canvas.style
        painter.save()
        view = QRectF(origin.x() - 3, origin.y(), self._width + 6, self.height)
        painter.setClipRect(view & canvas.clip)
        first = max(0, bisect_right(self._tops, canvas.clip.top() - origin.y()) - 1)
        left = origin.x() - self.sideways.offset
        span = sum(self._widths)
        for row in range(first, len(self._rows)):
            top = origin.y() + self._tops[row]
            if top > canvas.clip.bottom():
                break
            self._paint_row(canvas, QPointF(left, top), row, selected)
            if row + 1 < len(self._rows):
                thick = 2.0 if style.bare else 1.0
                y = round(top + self._row_height(row)) - thick
                color = style.faint if row == 0 and not style.bare else style.hairline
                painter.fillRect(QRectF(left, y, span, thick), color)
        painter.restore()
        self.sideways.paint(painter, origin.x(), origin.y() + self.height - 4, style.hairline)

    def _paint_row(
        self, canvas: Canvas, at: QPointF, row: int, selected: tuple[int, int] | None
    ) -> None:
        x = at.x()
        for column, cell in enumerate(self._rows[row]):
            part = None
            if selected:
                start = self._starts[row * self._columns + column]
                first, last = max(selected[0] - start, 0), min(selected[1] - start, cell.length)
                part = (first, last) if first < last else None
            place = QPointF(x, at.y() + _DOWN)
            cell.paint(canvas.painter, place, canvas.style, canvas.color, part, canvas.clip)
            x += self._widths[column]

    # --- positions --------------------------------------------------------------------------

    def _cell_at(self, x: float, y: float) -> tuple[int, Flow, float, float]:
        """The cell nearest to a point: its number, its text, and the point inside it."""
        row = min(max(bisect_right(self._tops, y) - 1, 0), len(self._rows) - 1)
        x += self.sideways.offset
        column = 0
        while column + 1 < self._columns and x >= self._widths[column]:
            x -= self._widths[column]
            column += 1
        cell = self._rows[row][column]
        return row * self._columns + column, cell, x, y - self._tops[row] - _DOWN

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        if y >= self.height:
            return self.length
        number, cell, inside_x, inside_y = self._cell_at(x, y)
        return self._starts[number] + cell.hit(inside_x, max(inside_y, 0.0))

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a cell."""
        _, cell, inside_x, inside_y = self._cell_at(x, y)
        return cell.over_text(inside_x, inside_y)

    def over_bar(self, y: float) -> bool:
        """Whether a height is that of the bar that scrolls sideways."""
        return self.sideways.overflows and y >= self.height - GRIP - 4

    def link_at(self, x: float, y: float) -> str:
        """The address of the link under a point, or an empty text."""
        _, cell, inside_x, inside_y = self._cell_at(x, y)
        return cell.link_at(inside_x, inside_y)

    def links(self) -> list[Link]:
        """The links of the cells, row by row."""
        links: list[Link] = []
        for row, top in zip(self._rows, self._tops, strict=True):
            x = -self.sideways.offset
            for cell, width in zip(row, self._widths, strict=False):
                links += [link.moved(x, top + _DOWN) for link in cell.links()]
                x += width
        return links

    def text(self, start: int, end: int) -> str:
        """The cells between two positions, with tabs between them and a line for each row."""
        pieces: list[str] = []
        for number, at in enumerate(self._starts):
            row, column = divmod(number, self._columns)
            cell = self._rows[row][column]
            if at + cell.length < start or at >= end:
                continue
            if pieces:
                pieces.append("\n" if column == 0 else "\t")
            piece = cut(cell.text, max(start - at, 0), min(end - at, cell.length))
            pieces.append(piece.replace("\u2028", " "))
        return "".join(pieces)

    def word_around(self, position: int) -> tuple[int, int]:
        """The positions of the word at a position."""
        start, cell = self._cell_of(position)
        first, last = word_around(cell.text, position - start)
        return start + first, start + last

    def line_around(self, position: int) -> tuple[int, int]:
        """The positions of the cell at a position."""
        start, cell = self._cell_of(position)
        return start, start + cell.length

    def _cell_of(self, position: int) -> tuple[int, Flow]:
        number = max(bisect_right(self._starts, position) - 1, 0)
        row, column = divmod(number, self._columns)
        return self._starts[number], self._rows[row][column]

    def end_point(self) -> QPointF:
        """Behind the last cell that holds text."""
        row = len(self._rows) - 1
        x = 0.0
        place = QPointF(0.0, self._tops[row] + _DOWN + self._style.line / 2)
        for column, cell in enumerate(self._rows[row]):
            if cell.length:
                place = cell.end_point() + QPointF(x, self._tops[row] + _DOWN)
            x += self._widths[column]
        return place
