"""Tables in the text of a document, each with its columns and what is in them.

The rows of a table are read from the text again each time, and never kept: a table may have a
million. A table is Markdown, or rows with bars between the cells where it is too wide for that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from app.documents.table_cells import (
    Mark,
    Order,
    date_order,
    decimal_mark,
    is_empty,
    number_reading,
    read_date,
)
from app.documents.tables import MOST_COLUMNS
from app.domain.documents import DocumentKind, page_spans
from app.domain.parts import FilePart
from app.domain.table_marks import is_under_header

_BAR = re.compile(r"(?<!\\)((?:\\\\)*)\|")
_SAMPLE = 2_000  # rows by which a column is judged
_TITLE_ROWS = 10  # at most so many stand above the row that names the columns
_SHARE = 0.5  # of the cells with a value: more are numbers, so the column is one of numbers
_EXAMPLES = 3
_OWN = (DocumentKind.TABLE.value, DocumentKind.SHEETS.value)  # with tables by our own readers
_YEAR = re.compile(r"(?:19|20)\d\d")


class ColumnKind(Enum):
    """What most cells of a column are."""

    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str  # unique in its table
    kind: ColumnKind = ColumnKind.TEXT
    examples: tuple[str, ...] = ()  # the most usual values


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the text of a file."""

    name: str  # unique among those of a question
    file: FilePart
    start: int  # its first character in the file's text
    end: int
    is_markdown: bool  # else its rows are cells with bars between them
    skipped: int = 0  # rows before the first one with values
    columns: tuple[Column, ...] = ()
    row_count: int = 0  # with values
    mark: Mark | None = None  # in its columns; None: no cell says it
    order: Order | None = None
    is_named: bool = True  # a row names its columns
    titles: int = 0  # rows above that one

    def rows(self) -> Iterator[list[str]]:
        """Its rows with values, from the first one; those without any cell are left out."""
        width = len(self.columns)
        for row in islice(self.all_rows(), self.skipped, None):
            if len(row) < width:
                row += [""] * (width - len(row))
            if any(row):
                yield row

    def all_rows(self) -> Iterator[list[str]]:
        """All its rows, also those that name its columns, but the line of dashes."""
        text, at = self.file.text, self.start
        is_second = False
        is_own = self.file.kind in _OWN
        while at < self.end:
            end = text.find("\n", at, self.end)
            end = self.end if end < 0 else end
            if not (is_second and self.is_markdown):
                yield _cells(text[at:end], self.is_markdown, is_own)
            is_second = at == self.start
            at = end + 1

    def column(self, name: str) -> Column | None:
        """The column of this name, in any case."""
        folded = name.strip().casefold()
        same = [each for each in self.columns if each.name == name]
        same += [each for each in self.columns if each.name.casefold() == folded]
        return same[0] if same else None


def _cells(line: str, is_markdown: bool, is_own: bool) -> list[str]:
    """The cells of a line; `is_own`: the app has written it."""
    if is_markdown and is_own and "\\" not in line and "| |" not in line:
        return line[2:-2].split(" | ")
    if is_markdown and "\\" in line:
        line = line.strip().removeprefix("|")
        line = line[:-1] if _BAR.search(line[-2:]) and line.endswith("|") else line
        cells = re.split(r"(?<!\\)\|", line)
        return [cell.strip().replace("\\|", "|") for cell in cells]
    if is_markdown:
        return [
            cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")
        ]
    return [cell.strip() for cell in line.split(" | ")]


def find_tables(files: Sequence[FilePart]) -> list[Table]:
    """The tables of files, in order, with their columns; those without a row are left out."""
    found: list[Table] = []
    names = Counter[str]()
    for file in files:
        for label, start, end in page_spans(file.text, file.pages):
            spans = list(_spans(file, start, end))
            for number, (begin, stop, is_markdown) in enumerate(spans, 1):
                page = label if file.unit else ""
                words = [file.name, page, str(number) if len(spans) > 1 else ""]
                name = " / ".join(filter(None, words))
                names[name] += 1
                if names[name] > 1:
                    name = f"{name} ({names[name]})"
                table = _with_columns(Table(name, file, begin, stop, is_markdown))
                if table.row_count:
                    found.append(table)
    return found


def _spans(file: FilePart, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Where tables begin and end, and whether each is Markdown."""
    text = file.text
    is_wide = file.kind in _OWN
    at, before = start, start
    while at < end:
        stop = text.find("\n", at, end)
        stop = end if stop < 0 else stop
        if before < at and "|" in text[before:at] and is_under_header(text[at:stop]):
            last = _end_of_rows(text, stop, end, "|")
            yield before, last, True
            before = at = last + 1
            continue
        if is_wide and text.count(" | ", at, stop) >= MOST_COLUMNS:
            last = _end_of_rows(text, stop, end, " | ")
            yield at, last, False
            before = at = last + 1
            continue
        before, at = at, stop + 1


def _end_of_rows(text: str, at: int, end: int, bar: str) -> int:
    """Where the lines with bars end, the first of which follows the line that ends at `at`."""
    while at < end:
        stop = text.find("\n", at + 1, end)
        stop = end if stop < 0 else stop
        if text.find(bar, at + 1, stop) < 0:
            break
        at = stop
    return at


def _with_columns(table: Table) -> Table:
    """The table with its columns, which its first rows name and tell."""
    first = list(islice(table.all_rows(), _SAMPLE))
    if not first:
        return table
    width = max(map(len, first))
    titles, is_named = _header(first, width)
    skipped = titles + 1 if is_named else titles
    names = first[titles] if is_named else []
    if not is_named and first and not any(first[0]):
        skipped = 1  # the reader has found no names either
    body = [row + [""] * (width - len(row)) for row in first[skipped:] if any(row)]
    count = sum(1 for row in islice(table.all_rows(), skipped, None) if any(row))
    columns: list[Column] = []
    used = set[str]()
    cells = [[row[at] for row in body] for at in range(width)]
    mark = decimal_mark(cell for column in cells for cell in column)
    order = date_order(cell for column in cells for cell in column)
    for at in range(width):
        name = names[at].replace("<br>", " ") if at < len(names) else ""
        name = unique(" ".join(name.split()) or f"Column {at + 1}", used)
        kind = _kind(cells[at], order)
        usual = Counter(cell for cell in cells[at] if cell).most_common(_EXAMPLES)
        columns.append(Column(name, kind, tuple(cell for cell, _ in usual)))
    return Table(
        table.name, table.file, table.start, table.end, table.is_markdown, skipped,
        tuple(columns), count, mark, order, is_named, titles,
    )  # fmt: skip


def unique(name: str, used: set[str]) -> str:
    """The name, with a number if it was used; it counts as used from now on."""
    made, number = name, 1
    while made.casefold() in used:
        number += 1
        made = f"{name} ({number})"
    used.add(made.casefold())
    return made


def _header(rows: Sequence[list[str]], width: int) -> tuple[int, bool]:
    """How many rows stand above the one that names the columns, and whether there is one."""
    titles = 0
    if width > 1:
        for at, row in enumerate(rows[:_TITLE_ROWS]):
            filled = sum(map(bool, row))
            if filled > max(1, width // 2):
                titles = at
                break
    first = [cell for cell in rows[titles] if cell]
    values = [cell for cell in first if number_reading(cell) or read_date(cell)]
    below = [row for row in rows[titles + 1 : titles + 50] if any(row)]
    if not first:
        return titles, False
    if values and not all(_YEAR.fullmatch(each) for each in values):
        return titles, False
    if values and len(values) == len(first):  # only years: names, if what is below are none
        return titles, not all(
            _YEAR.fullmatch(row[at])
            for row in below
            for at, cell in enumerate(rows[titles])
            if cell and at < len(row)
        )
    return titles, True


def _kind(cells: Sequence[str], order: Order | None) -> ColumnKind:
    filled = [cell for cell in cells if not is_empty(cell)]
    if not filled:
        return ColumnKind.EMPTY
    numbers = sum(1 for cell in filled if number_reading(cell))
    if numbers > _SHARE * len(filled):
        return ColumnKind.NUMBER
    dates = sum(1 for cell in filled if read_date(cell, order or Order.DAY))
    return ColumnKind.DATE if dates > _SHARE * len(filled) else ColumnKind.TEXT
