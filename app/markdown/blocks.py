"""What a reply is made of once it is read: a flat list of blocks, each knowing what it stands in.

Flat, because the transcript lays out, paints and selects leaf by leaf: a list of 500 items is 500
small blocks with a path, not one large block. Plain values, so the parser is tested without Qt.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one style; a line break inside a paragraph is a newline in the text."""

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    link: str = ""  # the address; empty: not a link


Runs = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One container around a block: a quote, or an item of a list."""

    quote: bool
    begins: bool  # this block is the first one in the container
    marker: str = ""  # of the item that begins here: "•", "3.", BOX or TICKED


BULLET, BOX, TICKED = "•", "☐", "☑"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block stands: source lines [start, end), and its containers, outermost first."""

    start: int
    end: int
    path: tuple[Level, ...] = ()
    tight: bool = False  # follows the block before it without a blank line, in the same list
    joined: bool = False  # goes on where the block before it was cut for its length


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    place: Place
    runs: Runs


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 1 to 6."""

    place: Place
    level: int
    runs: Runs


@dataclass(frozen=True, slots=True)
class Code:
    """A code block; `text` has no newline at its end, `closed` says the fence has ended."""

    place: Place
    language: str
    text: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table; every row has as many cells as the header."""

    place: Place
    alignments: tuple[str, ...]  # "left", "center" or "right", one a column
    header: tuple[Runs, ...]
    rows: tuple[tuple[Runs, ...], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line."""

    place: Place


Block = Paragraph | Heading | Code | Table | Rule
