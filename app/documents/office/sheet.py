"""The rows of a spreadsheet's sheet as Markdown tables, however far apart its cells are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.documents.source import MOST_CHARACTERS
from app.documents.tables import table_lines

_BETWEEN = "\x1f"  # the texts of a row, which are kept as one


@dataclass(frozen=True, slots=True)
class _Row:
    """The cells of a row that have text: their columns, from the left, and their texts."""

    columns: tuple[int, ...]  # the same object for rows that are alike
    texts: str


class Sheet:
    """Collects the rows that have text; empty ones part the tables of a sheet."""

    def __init__(self) -> None:
        self._blocks: list[list[_Row]] = []
        self._last = -2  # number of the row that was added last
        self._columns: tuple[int, ...] = ()
        self.size = 0  # characters

    @property
    def is_full(self) -> bool:
        return self.size > MOST_CHARACTERS

    def add(self, number: int, cells: Iterable[tuple[int, str]]) -> None:
        """Adds a row by its number: columns with their texts; empty texts are left out."""
        found = [(column, text) for column, text in cells if text and not text.isspace()]
        if not found:
            return
        columns = tuple(column for column, _ in found)
        if columns != self._columns:
            self._columns = columns
        if number > self._last + 1 or not self._blocks:
            self._blocks.append([])
        self._last = number
        texts = _BETWEEN.join(text.replace(_BETWEEN, " ") for _, text in found)
        self._blocks[-1].append(_Row(self._columns, texts))
        self.size += len(texts) + 3 * len(columns)

    @property
    def text(self) -> str:
        """Its tables; a row that stands alone is a line."""
        made: list[list[_Row]] = []
        before = (-1, -1)  # columns of the last one
        for block in self._blocks:
            extent = _extent(block)
            if made and len(made[-1]) > 1 and extent == before:
                made[-1].extend(block)  # an empty row within a table
            else:
                made.append(list(block))
            before = extent
        return "\n\n".join("\n".join(_lines(block)) for block in made)


def _extent(block: Iterable[_Row]) -> tuple[int, int]:
    return min(row.columns[0] for row in block), max(row.columns[-1] for row in block)


def _lines(block: list[_Row]) -> Iterator[str]:
    if len(block) == 1:
        yield block[0].texts.replace(_BETWEEN, " | ")
        return
    used = sorted(set[int]().union(*{row.columns for row in block}))
    if len(used) == 1:
        yield from (row.texts for row in block)
        return
    places = {column: i for i, column in enumerate(used)}
    yield from table_lines((_cells(row, places) for row in block), len(used))


def _cells(row: _Row, places: dict[int, int]) -> list[str]:
    texts = row.texts.split(_BETWEEN)
    if len(texts) == len(places):
        return texts
    cells = [""] * (places[row.columns[-1]] + 1)
    for column, text in zip(row.columns, texts, strict=True):
        cells[places[column]] = text
    return cells
