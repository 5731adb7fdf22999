"""Leaves of the block structure: paragraphs, code, tables and formulas that take further lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from markdown_it.common.utils import normalizeReference, unescapeAll
from markdown_it.helpers import parseLinkDestination, parseLinkTitle

from app.markdown.blocks import Runs
from app.markdown.formulas import BLOCK_ENDS, LONGEST_BLOCK, block_tex
from app.markdown.inline import References, clean_code, inline_runs, safe_address
from app.markdown.pieces import Pieces

TAB = 4  # columns
_FENCE = re.compile(r"(`{3,})([^`]*)$|(~{3,})(.*)$")
_DELIMITER_ROW = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_CELL_END = re.compile(r"(?<!\\)\|")
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){1,999})\]:[ \t]*\n?[ \t]*", re.DOTALL)
_BLANKS = re.compile(r"[ \t]*")
_TITLE_BREAK = re.compile(r"[ \t]*\n?[ \t]*")


class Cursor:
    """A place in a line, in columns: a tab reaches to the next multiple of `TAB`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0
        self._column = 0
        self._rest = 0  # columns of a tab that is used in part

    @property
    def indent(self) -> int:
        """The columns of white space ahead."""
        column = self._column + self._rest
        for letter in self.text[self._at : self._at + self._blanks()]:
            column += TAB - column % TAB if letter == "\t" else 1
        return column - self._column

    def _blanks(self) -> int:
        match = _BLANKS.match(self.text, self._at)
        return match.end() - self._at if match else 0

    @property
    def rest(self) -> str:
        """The text behind the white space ahead."""
        return self.text[self._at + self._blanks() :]

    @property
    def content(self) -> str:
        """The text from here on; the columns left of a tab are spaces."""
        return " " * self._rest + self.text[self._at :]

    def skip(self, columns: int) -> None:
        """Skip white space, at most so many columns of it."""
        while columns > 0:
            if self._rest:
                width = 1
                self._rest -= 1
            elif (letter := self.text[self._at : self._at + 1]) == " ":
                width = 1
                self._at += 1
            elif letter == "\t":
                full = TAB - self._column % TAB
                width = min(full, columns)
                self._rest = full - width
                self._at += 1
            else:
                return
            self._column += width
            columns -= width

    def skip_mark(self, length: int) -> None:
        """Skip the white space ahead and a mark of so many characters."""
        self._column += self.indent + length
        self._at += self._blanks() + length
        self._rest = 0


@dataclass(slots=True)
class TextLeaf:
    """A paragraph, or the part of it behind its link definitions."""

    start: int  # line
    is_apart: bool  # a blank line is before it
    pieces: Pieces
    lines: list[str] = field(default_factory=list[str])

    def shorten(self, count: int) -> None:
        """Remove all lines but the first ones."""
        del self.lines[count:]

    @property
    def text(self) -> str:
        """The lines, without the white space before each."""
        return "\n".join(self.lines)

    @property
    def content(self) -> str:
        """The text without the white space behind it."""
        return self.text.rstrip(" \t\n")

    def take_definitions(self, references: References, *, all_lines: bool) -> None:
        """Remove the link definitions at its beginning, and add them to `references`.

        Unless `all_lines`, one on the last lines is left, because its title may follow.
        """
        text = "\n".join(self.lines)
        at = 0
        while found := _definition(text, at):
            label, address, end = found
            rest = text[end:]
            if not all_lines and ("\n" not in rest or rest[0] in "\"'("):
                break
            if address is not None:
                references.setdefault(label, {"href": address, "title": ""})
            at = end
        if at:
            self.start += text[:at].count("\n")
            self.lines = text[at:].split("\n") if at < len(text) else []


def _definition(text: str, at: int) -> tuple[str, str | None, int] | None:
    """The link definition at a place in a paragraph: label, address, and its end behind its line."""
    label = _LABEL.match(text, at)
    if label is None or not label[1].strip():
        return None
    address = parseLinkDestination(text, label.end(), len(text))
    if not address.ok:
        return None
    end = _line_end(text, address.pos)
    gap = _TITLE_BREAK.match(text, address.pos)
    if gap and gap.end() > address.pos:
        title = parseLinkTitle(text, gap.end(), len(text))
        if title.ok and (title_end := _line_end(text, title.pos)) is not None:
            end = title_end
    if end is None:
        return None
    return normalizeReference(label[1]), safe_address(address.str), end


def _line_end(text: str, at: int) -> int | None:
    """The beginning of the next line, if only white space is before it."""
    blanks = _BLANKS.match(text, at)
    at = blanks.end() if blanks else at
    return None if text[at : at + 1] not in ("", "\n") else min(at + 1, len(text))


@dataclass(slots=True)
class CodeLeaf:
    """A code block: fenced, or indented if it has no mark."""

    start: int
    is_apart: bool
    indent: int = 0  # columns before the fence
    mark: str = ""
    language: str = ""
    lines: list[str] = field(default_factory=list[str])

    def shorten(self, count: int) -> None:
        """Remove all lines but the first ones."""
        del self.lines[count:]

    def add(self, cursor: Cursor) -> None:
        """Add a line without the indentation of the block."""
        cursor.skip(self.indent if self.mark else TAB)
        self.lines.append(clean_code(cursor.content))

    def closes(self, cursor: Cursor) -> bool:
        """Whether the line is the fence that closes it."""
        text = cursor.rest.rstrip(" \t")
        return (
            bool(self.mark)
            and cursor.indent < TAB
            and len(text) >= len(self.mark)
            and not text.strip(self.mark[0])
        )

    def may_close(self, cursor: Cursor) -> bool:
        """Whether the line may become the closing fence."""
        text = cursor.rest.rstrip(" \t")
        return bool(self.mark and text) and cursor.indent < TAB and not text.strip(self.mark[0])

    @property
    def text(self) -> str:
        """The code."""
        if self.mark:
            return "\n".join(self.lines)
        last = len(self.lines)
        while last and not self.lines[last - 1].strip(" \t"):
            last -= 1
        return "\n".join(self.lines[:last])


def fence(cursor: Cursor, start: int, *, is_apart: bool) -> CodeLeaf | None:
    """The code block that a line opens with a fence."""
    match = _FENCE.match(cursor.rest)
    if match is None:
        return None
    mark, info = (match[1], match[2]) if match[1] else (match[3], match[4])
    return CodeLeaf(start, is_apart, cursor.indent, mark, language_of(unescapeAll(info)))


def language_of(info: str) -> str:
    """The language of a fence's info string, without attributes."""
    words = info.split()
    return words[0].strip("{}.").lower()[:40] if words else ""


@dataclass(slots=True)
class TableLeaf:
    """A table; `lines` are its rows, without the header."""

    start: int
    is_apart: bool
    alignments: tuple[str, ...]
    header: tuple[str, ...]  # the source of each cell
    lines: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    head: tuple[Runs, ...] = ()
    rows: list[tuple[Runs, ...]] = field(default_factory=list[tuple[Runs, ...]])

    def shorten(self, count: int) -> None:
        """Remove all rows but the first ones."""
        del self.lines[count:], self.rows[count:]

    def add(self, text: str, references: References) -> None:
        """Add a row, with as many cells as the header."""
        found = _cells(text)
        missing = len(self.header) - len(found)
        cells = (*found[: len(self.header)], *[""] * missing)
        self.lines.append(cells)
        self.rows.append(row_runs(cells, references))


def row_runs(cells: tuple[str, ...], references: References) -> tuple[Runs, ...]:
    """The runs of the cells of a row."""
    return tuple(inline_runs(cell, references) for cell in cells)


def table(header: str, row: str, start: int) -> TableLeaf | None:
    """The table of a header line and the row of delimiters below it."""
    if not _DELIMITER_ROW.match(row) or ("|" not in header and "|" not in row and ":" not in row):
        return None
    cells, delimiters = _cells(header), _cells(row)
    if not cells or len(cells) != len(delimiters):
        return None
    sides = tuple(
        "center"
        if text.startswith(":") and text.endswith(":")
        else "right"
        if text.endswith(":")
        else "left"
        for text in delimiters
    )
    return TableLeaf(start, False, sides, tuple(cells))


def _cells(row: str) -> list[str]:
    """The sources of the cells of a row."""
    text = row.strip(" \t").removeprefix("|")
    if not text:
        return []
    cells = _CELL_END.split(text)
    if len(cells) > 1 and not cells[-1].strip(" \t"):
        cells.pop()
    return [cell.strip(" \t").replace("\\|", "|") for cell in cells]


@dataclass(slots=True)
class FormulaLeaf:
    """A display formula that has not ended yet."""

    start: int
    is_apart: bool
    undo: Callable[[], None]  # goes back to the state before its first line
    blocks_before: int  # finished before its first line
    source: list[str] = field(default_factory=list[str])  # its lines as they are in the text
    lines: list[str] = field(default_factory=list[str])

    def shorten(self, count: int) -> None:
        """Remove all lines but the first ones."""
        del self.lines[count:], self.source[count:]

    def add(self, line: str, text: str) -> str | None:
        """Add a line, and its text without the containers around it.

        Returns the TeX if it ends the formula, and None if this is no formula.
        """
        self.source.append(line)
        self.lines.append(text.rstrip())
        at = 2 if len(self.lines) == 1 else 0
        match = BLOCK_ENDS[self.lines[0][:2]].search(self.lines[-1], at)
        if match:
            return block_tex(self.lines, match.end()) or None
        if at == 0 and (_FENCE.match(self.lines[-1]) or self.lines[-1][:2] in BLOCK_ENDS):
            return None
        size = sum(map(len, self.lines)) + len(self.lines)
        return "" if size <= LONGEST_BLOCK else None
