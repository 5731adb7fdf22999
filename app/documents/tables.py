"""Tables of a document as Markdown: rows of cells between bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

MOST_COLUMNS = 60  # of a Markdown table; a wider one is kept as rows
_BREAKS = str.maketrans({"\r": None, "\v": "\n", "\f": "\n"})
_BAR = re.compile(r"(?<!\\)(\\*+)\|")


def cell_text(text: str) -> str:
    """A cell's text on one line, its bars escaped; its lines are separated by `<br>`."""
    text = text.strip()
    if not text or text.isalnum():
        return text
    if "|" in text:
        text = _BAR.sub(r"\1\1\\|", text)
    lines = (" ".join(line.split()) for line in text.translate(_BREAKS).split("\n"))
    return "<br>".join(line for line in lines if line)


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """A table whose first row is its header; "" without any text.

    Rows may differ in length; empty rows and columns at the ends are left out, empty rows between
    are not. A table of more than `MOST_COLUMNS` is kept as rows of its cells.
    """
    cells = trimmed([[cell_text(cell) for cell in row] for row in rows])
    return "\n".join(_lines(cells, max(map(len, cells)))) if cells else ""


def table_lines(rows: Iterable[Sequence[str]], width: int) -> Iterator[str]:
    """The lines of a table of so many columns, one by one, for long ones; no row is left out."""
    return _lines(([cell_text(cell) for cell in row] for row in rows), width)


def _lines(rows: Iterable[Sequence[str]], width: int) -> Iterator[str]:
    for i, row in enumerate(rows):
        if width > MOST_COLUMNS:
            yield " | ".join(row)
            continue
        yield "| " + " | ".join([*row, *([""] * (width - len(row)))]) + " |"
        if not i:
            yield "|" + " --- |" * width


def trimmed(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows without those at the top and end that are empty, and without empty last cells."""
    made: list[list[str]] = []
    for row in rows:
        end = len(row)
        while end and not row[end - 1]:
            end -= 1
        if end or made:
            made.append(list(row[:end]))
    while made and not made[-1]:
        made.pop()
    return made
