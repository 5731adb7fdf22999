"""Tables of a document as Markdown: rows of cells between bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MOST_COLUMNS = 60  # of a Markdown table; a wider one is kept as rows
_BREAKS = str.maketrans({"\r": None, "\v": "\n", "\f": "\n"})
_BAR = re.compile(r"(\\*)\|")


def cell_text(text: str) -> str:
    """A cell's text on one line, its bars escaped; its lines are separated by `<br>`."""
    text = text.strip()
    if text.isalnum():
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
    if not cells:
        return ""
    width = max(map(len, cells))
    if width > MOST_COLUMNS:
        return "\n".join(" | ".join(row) for row in cells)
    lines = [_line(row, width) for row in cells]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


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


def _line(row: Sequence[str], width: int) -> str:
    return "| " + " | ".join([*row, *([""] * (width - len(row)))]) + " |"
