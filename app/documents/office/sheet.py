"""The rows of a spreadsheet's sheet as Markdown tables, however far apart its cells are."""

from __future__ import annotations

from collections.abc import Iterable

from app.documents.source import MOST_CHARACTERS
from app.documents.tables import markdown_table

Row = list[tuple[int, str]]  # columns with their texts, from the left


class Sheet:
    """Collects the rows that have text; empty ones part the tables of a sheet."""

    def __init__(self) -> None:
        self._blocks: list[list[Row]] = []
        self._last = -2  # number of the row that was added last
        self.size = 0  # characters

    @property
    def is_full(self) -> bool:
        return self.size > MOST_CHARACTERS

    def add(self, number: int, cells: Row) -> None:
        """Adds a row by its number; cells without text are left out."""
        row = [(column, text) for column, text in cells if text and not text.isspace()]
        if not row:
            return
        if number > self._last + 1 or not self._blocks:
            self._blocks.append([])
        self._last = number
        self._blocks[-1].append(row)
        self.size += sum(len(text) + 3 for _, text in row)

    @property
    def text(self) -> str:
        """Its tables; a row that stands alone is a line."""
        made: list[list[Row]] = []
        for block in self._blocks:
            if made and len(made[-1]) > 1 and _extent(block) == _extent(made[-1]):
                made[-1].extend(block)  # an empty row within a table
            else:
                made.append(list(block))
        return "\n\n".join(_table(block) for block in made)


def _extent(block: Iterable[Row]) -> tuple[int, int]:
    return min(row[0][0] for row in block), max(row[-1][0] for row in block)


def _table(block: list[Row]) -> str:
    if len(block) == 1:
        return " | ".join(text for _, text in block[0])
    used = sorted({column for row in block for column, _ in row})
    if len(used) == 1:
        return "\n".join(row[0][1] for row in block)
    places = {column: i for i, column in enumerate(used)}
    rows: list[list[str]] = []
    for row in block:
        cells = [""] * (places[row[-1][0]] + 1)
        for column, text in row:
            cells[places[column]] = text
        rows.append(cells)
    return markdown_table(rows)
