"""Table view: column widths from the content, separators between rows, horizontal scrolling.

Each cell is a `Flow`, so a streamed row is laid out without the rows above it. Only the header and
the first `MEASURED_ROWS` rows determine the column widths: later rows do not resize the table.
A table whose first cell with letters is written from right to left has its first column on the right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from PySide6.QtCore import QPointF, QRectF

from app.markdown.blocks import Block, Runs, Table
from app.markdown.formulas import Tex
from app.ui.blocks.blocks import Canvas
from app.ui.blocks.scrolling import GRAB_HEIGHT, HorizontalScroll
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.text import Flow, Link, cut, word_around
from app.ui.widgets.direction import runs_right_to_left

MEASURED_ROWS = 40  # rows whose content determines the column widths
MIN_COLUMN_WIDTH = 64.0  # pixels: minimum text width of a column
MAX_SCROLLING_WIDTH = 180.0  # pixels: maximum column width when the table scrolls anyway
MAX_WORD_WIDTH = 200.0  # pixels: wider words may be broken
_COLUMN_SPACING, _CELL_PADDING = (
    24.0,
    8.0,
)  # pixels between columns, and above and below the text of a cell


class TableView:
    """Layout of one table; positions count the cells' characters plus one separator per cell."""

    def __init__(self, block: Table, style: ReadingStyle) -> None:
        self.block: Block = block
        self.height = 0.0
        self.right_to_left = _is_right_to_left(block)
        self.waiting: list[Tex] = []
        self.changed_from = 0.0  # y from which the last update needs a repaint
        self.horizontal_scroll = HorizontalScroll()
        self._table = block
        self._style = style
        self._width = 0.0
        self._columns = len(block.header)
        self._natural_widths = [0.0] * self._columns
        self._word_widths = [MIN_COLUMN_WIDTH] * self._columns
        self._widths: list[float] = []
        self._rows: list[list[Flow]] = []
        self._sources: list[tuple[Runs, ...]] = []
        self._row_tops: list[float] = []
        self._cell_starts: list[
            int
        ] = []  # position of the first character of each cell, row by row
        self._end = 0
        for row in (block.header, *block.rows):
            self._add(row)

    # --- content ----------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """The number of text positions in the table."""
        return max(self._end - 1, 0)

    @property
    def natural_width(self) -> float:
        """The width of all columns, in pixels."""
        return sum(self._widths)

    @property
    def row_tops(self) -> Sequence[float]:
        """The y coordinates of the rows, and of the end of the last one."""
        return (*self._row_tops, self.height)

    def _add(self, row: tuple[Runs, ...]) -> None:
        style = self._style
        header = not self._rows
        cells: list[Flow] = []
        for column, runs in enumerate(row[: self._columns]):
            if header:
                runs = tuple(replace(run, bold=True) for run in runs)
            align = self._table.alignments[column]
            if self.right_to_left and align == "left":  # where lines begin
                align = "right"
            cell = Flow(runs, style, style.cell_face, align=align)
            self.waiting += cell.waiting
            if len(self._rows) <= MEASURED_ROWS:
                cell.layout(1e5)
                self._natural_widths[column] = max(self._natural_widths[column], cell.natural_width)
                word = min(cell.widest_word, MAX_WORD_WIDTH)
                self._word_widths[column] = max(self._word_widths[column], word)
            self._cell_starts.append(self._end)
            self._end += cell.length + 1
            cells.append(cell)
        self._rows.append(cells)
        self._sources.append(row)

    def update(self, block: Block) -> bool:
        """Append streamed rows; False if the header or the alignments changed."""
        if not isinstance(block, Table):
            return False
        if block.header != self._table.header or block.alignments != self._table.alignments:
            return False
        if _is_right_to_left(block) != self.right_to_left:
            return False
        rows = (block.header, *block.rows)
        kept = len(self._rows)
        # Only the last rows can differ: earlier ones were complete at the last update.
        while kept > 1 and (kept > len(rows) or self._sources[kept - 1] != rows[kept - 1]):
            kept -= 1
        self._drop_rows_from(kept)
        self.block = self._table = block
        for row in rows[kept:]:
            self._add(row)
        self._layout_rows_from(kept)
        return True

    def _drop_rows_from(self, kept: int) -> None:
        if kept < len(self._rows):
            self._end = self._cell_starts[kept * self._columns]
            del self._rows[kept:], self._sources[kept:], self._cell_starts[kept * self._columns :]

    # --- layout -----------------------------------------------------------------------------

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        self._layout_rows_from(0)
        return self.height

    def _layout_rows_from(self, first: int) -> None:
        """Lay out the rows from `first` on, or all rows if the column widths changed."""
        widths = self._column_widths()
        if widths != self._widths:
            self._widths, first = widths, 0
        self.changed_from = self._row_tops[first - 1] if first else 0.0
        scroll = self.horizontal_scroll
        from_end = scroll.content_width - scroll.viewport_width - scroll.offset
        scroll.fit(sum(widths), self._width)
        if self.right_to_left:
            scroll.move_to(scroll.content_width - scroll.viewport_width - from_end)
        del self._row_tops[first:]
        y = self._row_tops[-1] + self._row_height(first - 1) if first else 0.0
        for row in self._rows[first:]:
            self._row_tops.append(y)
            heights = [
                cell.layout(width - _COLUMN_SPACING)
                for cell, width in zip(row, widths, strict=False)
            ]
            y += max(heights, default=self._style.line) + 2 * _CELL_PADDING + 1
        self.height = y + (GRAB_HEIGHT if self.horizontal_scroll.overflows else 0)

    def _row_height(self, row: int) -> float:
        return (
            max((cell.height for cell in self._rows[row]), default=self._style.line)
            + 2 * _CELL_PADDING
            + 1
        )

    def _column_widths(self) -> list[float]:
        """Natural widths if they fit; else the longest word's width plus a share of the rest."""
        natural = [width + _COLUMN_SPACING + 1 for width in self._natural_widths]
        if sum(natural) <= self._width:
            return natural
        least = [
            min(width, word + _COLUMN_SPACING + 1)
            for width, word in zip(natural, self._word_widths, strict=True)
        ]
        spare = self._width - sum(least)
        if spare <= 0:  # the table scrolls anyway, so columns may be wider than their longest word
            return [
                max(low, min(width, MAX_SCROLLING_WIDTH))
                for low, width in zip(least, natural, strict=True)
            ]
        wanted = [width - low for width, low in zip(natural, least, strict=True)]
        return [low + spare * want / sum(wanted) for low, want in zip(least, wanted, strict=True)]

    @property
    def _left(self) -> float:
        """The x coordinate of the left edge of all columns."""
        spare = max(self._width - sum(self._widths), 0.0) if self.right_to_left else 0.0
        return spare - self.horizontal_scroll.offset

    def _cell_lefts(self) -> list[float]:
        """The x coordinates of the text of each column, from the first column on."""
        order = self._widths[::-1] if self.right_to_left else self._widths
        lefts = [self._left + sum(order[:n]) for n in range(len(order))]
        return [left + self._lead for left in (lefts[::-1] if self.right_to_left else lefts)]

    # --- painting ---------------------------------------------------------------------------

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint the rows inside the clip rectangle."""
        painter, style = canvas.painter, canvas.style
        painter.save()
        view = QRectF(origin.x() - 3, origin.y(), self._width + 6, self.height)
        painter.setClipRect(view & canvas.clip)
        first = max(0, bisect_right(self._row_tops, canvas.clip.top() - origin.y()) - 1)
        left = origin.x() + self._left
        span = sum(self._widths)
        for row in range(first, len(self._rows)):
            top = origin.y() + self._row_tops[row]
            if top > canvas.clip.bottom():
                break
            self._paint_row(canvas, QPointF(origin.x(), top), row, selected)
            if row + 1 < len(self._rows):
                thick = 2.0 if style.high_contrast else 1.0
                y = round(top + self._row_height(row)) - thick
                color = style.faint if row == 0 and not style.high_contrast else style.hairline
                painter.fillRect(QRectF(left, y, span, thick), color)
        painter.restore()
        self.horizontal_scroll.paint(
            painter, origin.x(), origin.y() + self.height - 4, style.hairline
        )

    def _paint_row(
        self, canvas: Canvas, at: QPointF, row: int, selected: tuple[int, int] | None
    ) -> None:
        lefts = self._cell_lefts()
        for column, cell in enumerate(self._rows[row]):
            part = None
            if selected:
                start = self._cell_starts[row * self._columns + column]
                first, last = max(selected[0] - start, 0), min(selected[1] - start, cell.length)
                part = (first, last) if first < last else None
            place = QPointF(at.x() + lefts[column], at.y() + _CELL_PADDING)
            cell.paint(canvas.painter, place, canvas.style, canvas.color, part, canvas.clip)

    # --- positions --------------------------------------------------------------------------

    def _cell_at(self, x: float, y: float) -> tuple[int, Flow, float, float]:
        """The cell nearest to a point: its index, its text, and the point in cell coordinates."""
        row = min(max(bisect_right(self._row_tops, y) - 1, 0), len(self._rows) - 1)
        lefts = self._cell_lefts()
        before = [n for n, left in enumerate(lefts) if left - self._lead <= x]
        outer = self._columns - 1 if self.right_to_left else 0
        column = max(before, key=lefts.__getitem__, default=outer)
        cell = self._rows[row][column]
        inside = x - lefts[column], y - self._row_tops[row] - _CELL_PADDING
        return row * self._columns + column, cell, *inside

    @property
    def _lead(self) -> float:
        """The space between the left edge of a column and its text."""
        return _COLUMN_SPACING if self.right_to_left else 0.0

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        if y >= self.height:
            return self.length
        number, cell, inside_x, inside_y = self._cell_at(x, y)
        return self._cell_starts[number] + cell.hit(inside_x, max(inside_y, 0.0))

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a cell."""
        _, cell, inside_x, inside_y = self._cell_at(x, y)
        return cell.over_text(inside_x, inside_y)

    def over_scroll_bar(self, y: float) -> bool:
        """Whether `y` hits the horizontal scroll bar."""
        return self.horizontal_scroll.overflows and y >= self.height - GRAB_HEIGHT - 4

    def link_at(self, x: float, y: float) -> str:
        """The address of the link under a point, or an empty text."""
        _, cell, inside_x, inside_y = self._cell_at(x, y)
        return cell.link_at(inside_x, inside_y)

    def formula_at(self, x: float, y: float) -> str:
        """The source of the typeset formula under a point, or an empty text."""
        _, cell, inside_x, inside_y = self._cell_at(x, y)
        return cell.formula_at(inside_x, inside_y)

    def links(self) -> list[Link]:
        """The links of the cells, row by row."""
        links: list[Link] = []
        for row, top in zip(self._rows, self._row_tops, strict=True):
            for cell, x in zip(row, self._cell_lefts(), strict=False):
                links += [link.moved(x, top + _CELL_PADDING) for link in cell.links()]
        return links

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The rectangles of a range of positions, one or more per cell."""
        first = max(bisect_right(self._cell_starts, start) - 1, 0)
        lefts = self._cell_lefts()
        for number in range(first, len(self._cell_starts)):
            at = self._cell_starts[number]
            if at >= end:
                break
            row, column = divmod(number, self._columns)
            x = lefts[column]
            y = self._row_tops[row] + _CELL_PADDING
            cell = self._rows[row][column]
            for area in cell.areas(max(start - at, 0), min(end - at, cell.length)):
                yield area.translated(x, y)

    def text(self, start: int, end: int) -> str:
        """The text of a range of positions: cells separated by tabs, rows by line breaks."""
        pieces: list[str] = []
        for number, at in enumerate(self._cell_starts):
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
        """The start and end of the word at a position."""
        start, cell = self._cell_of(position)
        inside = position - start
        first, last = cell.formula_around(inside) or word_around(cell.text, inside)
        return start + first, start + last

    def line_around(self, position: int) -> tuple[int, int]:
        """The start and end of the cell at a position."""
        start, cell = self._cell_of(position)
        return start, start + cell.length

    def _cell_of(self, position: int) -> tuple[int, Flow]:
        number = max(bisect_right(self._cell_starts, position) - 1, 0)
        row, column = divmod(number, self._columns)
        return self._cell_starts[number], self._rows[row][column]

    def end_point(self) -> QPointF:
        """The end of the last cell that contains text."""
        row = len(self._rows) - 1
        lefts = self._cell_lefts()
        place = QPointF(lefts[0], self._row_tops[row] + _CELL_PADDING + self._style.line / 2)
        for column, cell in enumerate(self._rows[row]):
            if cell.length:
                top = self._row_tops[row] + _CELL_PADDING
                place = cell.end_point() + QPointF(lefts[column], top)
        return place


def _is_right_to_left(table: Table) -> bool:
    """Whether the first letters of a table are written from right to left."""
    cells = (run.text for row in (table.header, *table.rows[:1]) for cell in row for run in cell)
    return runs_right_to_left(" ".join(cells))
