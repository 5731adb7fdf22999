"""Blocks of a text document as Markdown: headings, paragraphs, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.documents.readers.package import damaged
from app.documents.source import MOST_CHARACTERS
from app.documents.tables import cell_text, markdown_table
from app.domain.documents import Document, DocumentKind, Page, Warned

DEEPEST_HEADING = 6
BULLET = "-"  # label of an item without a number
_TABS = re.compile(r"(?<![ \t]) *+\t[ \t]*+")


def link(text: str, address: str) -> str:
    """A link in Markdown; an address that is its own text stays as it is."""
    shown = text.strip()
    if not shown or shown in (address, address.removeprefix("mailto:"), address.rstrip("/")):
        return text or address
    return f"[{text}]({address})"


def plain(text: str) -> str:
    """A paragraph's text without spaces around its lines."""
    lines = (line.strip(" \t\xa0") for line in text.split("\n"))
    return _TABS.sub(" ", "\n".join(lines)).strip()


def whole(document: Document) -> Document:
    """The document; raises ExtractionError for a damaged one of which no text could be read."""
    if document.warnings and not any(page.text for page in document.pages):
        raise damaged("nothing before the damage can be read")
    return document


class Blocks:
    """The blocks of a document or of a cell, in their order."""

    def __init__(self) -> None:
        self._parts: list[str] = []  # with what separates them from those before
        self._lines: list[str] = []  # the same within a cell
        self._list = ""  # the kind of the list that is open
        self._size = 0  # characters

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def cell(self) -> str:
        """Its text within a cell of a table."""
        return "\n".join(self._lines)

    @property
    def is_full(self) -> bool:
        """Whether it has more characters than a document may."""
        return self._size > MOST_CHARACTERS

    def heading(self, level: int, text: str) -> None:
        line = plain(text).replace("\n", " ")
        self._add(f"{'#' * min(level, DEEPEST_HEADING)} {line}" if line else "")

    def paragraph(self, text: str) -> None:
        self._add(plain(text))

    def item(self, depth: int, label: str, text: str) -> None:
        """An item of a list, at a depth from 0 on."""
        shown = plain(text)
        if shown:
            indent = "  " * depth
            lines = shown.replace("\n", f"\n{indent}  ")
            kind = "bullets" if label == BULLET else "numbers"
            self._add(f"{indent}{label} {lines}", (depth and self._list) or kind)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        cells = (", ".join(filter(None, map(cell_text, row))) for row in rows)
        self._add(markdown_table(rows), in_cell="\n".join(cells))

    def extend(self, other: Blocks) -> None:
        self._add(other.text, in_cell=other.cell)

    def _add(self, text: str, in_list: str = "", in_cell: str = "") -> None:
        if text:
            if self._parts:
                self._parts.append("\n" if in_list and self._list == in_list else "\n\n")
            self._parts.append(text)
            self._lines.append(in_cell or text)
            self._list = in_list
            self._size += len(text) + 2

    def document(
        self, kind: DocumentKind, title: str, warnings: tuple[Warned, ...] = ()
    ) -> Document:
        """The document of one text that these blocks are; raises ExtractionError as `whole`."""
        return whole(Document(kind, (Page("", self.text),), title=title, warnings=warnings))
