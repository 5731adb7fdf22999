"""Tables that are drawn with ruled lines on a PDF's page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from app.documents.intervals import clusters
from app.documents.pdf.geometry import Fragment, Rule, Word, fragments
from app.documents.pdf.paragraphs import cell_lines, joined

NEAR = 3.0  # points between lines that meet
MOST_CELLS = 20_000
DEEPEST = 50  # groups within groups
MOST_RULES = 5_000
Cell = tuple[int, int]  # row, column


def with_tables(words: list[Word], rules: Sequence[Rule]) -> list[Fragment]:
    """The fragments of a page, those within ruled tables replaced by the tables."""
    tables: list[Fragment] = []
    for group in _groups(rules[:MOST_RULES]):
        grid = _Grid(group)
        if not grid.is_table:
            continue
        inside = [word for word in words if grid.has(word)]
        rows = grid.rows(inside)
        filled = sum(bool(cell) for row in rows for cell in row)
        across = sum(any(cells) for cells in zip(*rows, strict=True))
        if across < 2 or sum(map(any, rows)) < 2 or 4 * filled < sum(map(len, rows)):
            continue  # a chart, or a frame around text
        taken = set(map(id, inside))
        words = [word for word in words if id(word) not in taken]
        tables.append(Fragment(grid.xs[0], grid.ys[0], grid.xs[-1], grid.ys[-1], inside, rows))
    return fragments(words) + tables


def _groups(rules: Sequence[Rule], depth: int = 0) -> list[list[Rule]]:
    """Rules that meet each other, directly or through others."""
    made: list[list[Rule]] = []
    for column in clusters(rules, (r.x0 - NEAR for r in rules), (r.x1 + NEAR for r in rules)):
        rows = clusters(column, (r.y0 - NEAR for r in column), (r.y1 + NEAR for r in column))
        if len(rows) == 1 or depth == DEEPEST:
            made.append(column)
        else:
            made.extend(found for row in rows for found in _groups(row, depth + 1))
    return made


def _places(values: list[float]) -> list[float]:
    """The values, those that are near each other as one."""
    groups = clusters(values, values, (value + NEAR for value in values))
    return [sum(group) / len(group) for group in groups]


class _Grid:
    """The rows and columns between rules that meet."""

    def __init__(self, rules: list[Rule]) -> None:
        self._across = [rule for rule in rules if rule.is_horizontal]
        self._down = [rule for rule in rules if not rule.is_horizontal]
        self.xs = _places(
            [rule.x0 for rule in self._down]
            + [edge(rule.x0 for rule in self._across) for edge in (min, max) if self._across]
            + [max((rule.x1 for rule in self._across), default=self._down[0].x0)]
            if self._down
            else []
        )
        self.ys = _places(
            [rule.y0 for rule in self._across]
            + [min((rule.y0 for rule in self._down), default=self._across[0].y0)]
            + [max((rule.y1 for rule in self._down), default=self._across[0].y0)]
            if self._across
            else []
        )

    @property
    def is_table(self) -> bool:
        columns, rows = len(self.xs) - 1, len(self.ys) - 1
        return columns >= 2 and rows >= 2 and columns * rows <= MOST_CELLS

    def has(self, word: Word) -> bool:
        x, y = (word.x0 + word.x1) / 2, (word.y0 + word.y1) / 2
        return self.xs[0] <= x <= self.xs[-1] and self.ys[0] <= y <= self.ys[-1]

    def rows(self, words: list[Word]) -> list[list[str]]:
        """The texts of the cells; that of a merged cell stands in its first one."""
        cells: dict[Cell, list[Word]] = {}
        firsts: dict[Cell, Cell] = {}
        for word in words:
            row = bisect_right(self.ys, (word.y0 + word.y1) / 2, 1, len(self.ys) - 1) - 1
            column = bisect_right(self.xs, (word.x0 + word.x1) / 2, 1, len(self.xs) - 1) - 1
            place = row, column
            if place not in firsts:
                firsts[place] = self._first(row, column)
            cells.setdefault(firsts[place], []).append(word)
        made: list[list[str]] = []
        for row in range(len(self.ys) - 1):
            texts = [cell_lines(cells.get((row, i), [])) for i in range(len(self.xs) - 1)]
            made.extend(_split(texts))
        return made

    def _first(self, row: int, column: int) -> Cell:
        """The upper left of the cells that no rule separates from this one."""
        y = (self.ys[row] + self.ys[row + 1]) / 2
        while column and not any(
            abs(rule.x0 - self.xs[column]) <= NEAR and rule.y0 <= y <= rule.y1
            for rule in self._down
        ):
            column -= 1
        x = (self.xs[column] + self.xs[column + 1]) / 2
        while row and not any(
            abs(rule.y0 - self.ys[row]) <= NEAR and rule.x0 <= x <= rule.x1 for rule in self._across
        ):
            row -= 1
        return row, column


def _split(cells: list[list[Fragment]]) -> list[list[str]]:
    """The rows in a row of cells: several where no line is drawn between them."""
    counts = [len(lines) for lines in cells if lines]
    first = cells[0]
    if (
        len(counts) >= 2
        and len(first) >= 3
        and max(counts) == len(first)
        and all(
            any(abs(line.middle - start.middle) < 0.3 * line.height for start in first)
            for lines in cells
            for line in lines
        )
    ):
        return [
            [
                " ".join(
                    line.text
                    for line in lines
                    if abs(line.middle - start.middle) < 0.3 * line.height
                )
                for lines in cells
            ]
            for start in first
        ]
    return [[joined([line.text for line in lines]) for lines in cells]]
