"""Block types of parsed markdown: a flat list, each block with the path of its containers.

Flat, because the transcript lays out, paints and selects block by block: a list of 500 items is
500 small blocks with a path, not one large block. Plain values, so the parser needs no Qt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """A run of characters of one style; a line break in a paragraph is a newline."""

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    link: str = ""  # the address, or a passage as in `passage_link`; empty: not a link
    formula: bool = False  # the text is a formula with its delimiters


Runs = tuple[Run, ...]
_PASSAGE = "passage:"


def passage_link(number: int) -> str:
    """The link of a reference to a passage; no address that a text contains is like it."""
    return f"{_PASSAGE}{number}"


def passage_number(link: str) -> int:
    """The number of the passage that a link refers to; 0: it is an address."""
    return int(link.removeprefix(_PASSAGE)) if link.startswith(_PASSAGE) else 0


def passage_numbers(runs: Iterable[Run]) -> frozenset[int]:
    """The numbers of the passages that a text refers to."""
    return frozenset(number for run in runs if (number := passage_number(run.link)))


@dataclass(frozen=True, slots=True)
class Level:
    """One container around a block: a quote, or an item of a list."""

    quote: bool
    begins: bool  # this block is the first one in the container
    marker: str = ""  # of the list item that begins here: "•", "3.", BOX, TICKED, or "3. " + BOX
    first: bool = False  # the list item that begins here is the first one of its list
    is_numbered_task: bool = False  # its item has a number and a box


BULLET, BOX, TICKED = "•", "☐", "☑"


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a block: source lines [start, end), and its containers, outermost first."""

    start: int
    end: int
    path: tuple[Level, ...] = ()
    tight: bool = False  # no blank line between it and the block before, in the same list
    joined: bool = False  # continues the block before it, which was split for its length


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of text."""

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
    """A code block; `text` has no final newline, `closed` is whether the fence has ended."""

    place: Place
    language: str
    text: str
    closed: bool
    label: str = ""  # what it is, for its header; "": its language
    wraps: bool = False  # long lines are broken, else they scroll


@dataclass(frozen=True, slots=True)
class Table:
    """A table; every row has as many cells as the header."""

    place: Place
    alignments: tuple[str, ...]  # "left", "center" or "right" for each column
    header: tuple[Runs, ...]
    rows: tuple[tuple[Runs, ...], ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A display formula: its source, and its TeX without delimiters."""

    place: Place
    source: str
    tex: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line."""

    place: Place


Block = Paragraph | Heading | Code | Table | Formula | Rule


def runs_of(block: Block) -> Runs:
    """All runs of a block."""
    match block:
        case Paragraph() | Heading():
            return block.runs
        case Table():
            return tuple(run for row in (block.header, *block.rows) for cell in row for run in cell)
        case _:
            return ()
