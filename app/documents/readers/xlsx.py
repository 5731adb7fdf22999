"""Text of Excel workbooks: a page for each sheet, its values as they are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from app.documents.office.number_formats import BUILT_IN, GENERAL, shown, shown_text
from app.documents.office.ooxml import main_part, number, part_of, relations, title
from app.documents.office.sheet import Sheet
from app.documents.office.writing import whole
from app.documents.readers.package import Package
from app.documents.source import MOST_CHARACTERS, ExtractionError, ExtractionFault, Look, Source
from app.domain.documents import Document, DocumentKind, Page, PageUnit

HIDDEN = "(hidden sheet)"  # the first line of its page
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_REFERENCE = re.compile(r"([A-Za-z]{1,3})(\d+)")
_IN_FORMULA = re.compile(r"(\"[^\"]*\"|'[^']*'!)|(\$?)\b([A-Z]{1,3})(\$?)(\d{1,7})\b(?![(\w])")


def read(source: Source) -> Document:
    """The document of an xlsx file or its like; raises ExtractionError."""
    with Package(source) as package:
        book = _Book(package)
        pages: list[Page] = []
        size = 0
        for name, part, is_hidden in book.sheets:
            text = book.text_of(part)
            if is_hidden and text:
                text = f"{HIDDEN}\n\n{text}"
            pages.append(Page(name, text))
            size += len(text)
            if size > MOST_CHARACTERS:
                break
        return whole(
            Document(
                DocumentKind.SHEETS, tuple(pages), PageUnit.SHEET, title(package), package.warnings
            )
        )


@dataclass(frozen=True, slots=True)
class _Shared:
    """A formula that other cells have, too, moved to their places."""

    text: str
    row: int
    column: int


class _Book:
    """A workbook: its sheets, the strings they share, and the formats of their numbers."""

    def __init__(self, package: Package) -> None:
        main = main_part(package, "xl/workbook.xml")
        if main.endswith(".bin"):
            raise ExtractionError(ExtractionFault.UNKNOWN, Look.OLD_SHEETS)
        self._package = package
        found = relations(package, main)
        root = package.tree(main)
        about = root.find("s:workbookPr") if root is not None else None
        self._from_1904 = about is not None and about.get("date1904") in ("1", "true", "on")
        self._formats = _formats(package, part_of(found, "styles"))
        strings = part_of(found, "sharedStrings")
        self._strings = [_text(each) for each in package.elements(strings, "s:si")]
        self.sheets: list[tuple[str, str, bool]] = []  # name, part, whether it is hidden
        for each in root.iter("s:sheet") if root is not None else ():
            relation = found.get(each.get("r:id", ""))
            if relation is not None and relation.kind == "worksheet":
                is_hidden = each.get("state", "visible") != "visible"
                self.sheets.append((each.get("name", ""), relation.target, is_hidden))

    def text_of(self, part: str) -> str:
        """The text of the sheet in a part of the package."""
        sheet = Sheet()
        shared: dict[str, _Shared] = {}
        at = 0
        for row in self._package.elements(part, "s:row"):
            at = number(row.get("r"), at + 1)
            cells: list[tuple[int, str]] = []
            column = -1
            for cell in row:
                column = _column(cell.get("r"), column + 1)
                cells.append((column, self._shown(cell, at, column, shared)))
            sheet.add(at, cells)
            if sheet.is_full:
                break
        return sheet.text

    def _shown(self, cell: Element, row: int, column: int, shared: dict[str, _Shared]) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            inline = cell.find("s:is")
            return _text(inline) if inline is not None else ""
        formula = cell.find("s:f")
        if formula is not None and formula.get("t") == "shared" and formula.text:
            shared[formula.get("si", "")] = _Shared(formula.text, row, column)
        value = cell.findtext("s:v") or ""
        if not value:
            if formula is None or kind == "str":
                return ""
            return _formula(formula, row, column, shared)
        if kind == "s":
            at = number(value, -1)
            text = self._strings[at] if 0 <= at < len(self._strings) else ""
            return shown_text(text, self._format(cell))
        if kind == "b":
            return "TRUE" if value.strip() in ("1", "true") else "FALSE"
        if kind == "n":
            try:
                return shown(float(value), self._format(cell), from_1904=self._from_1904)
            except (ValueError, OverflowError):
                return value
        return _unescaped(value)

    def _format(self, cell: Element) -> str:
        at = number(cell.get("s"))
        return self._formats[at] if 0 <= at < len(self._formats) else GENERAL


def _column(reference: str | None, default: int) -> int:
    """The column of a reference such as `AB12`, from 0 on."""
    found = _REFERENCE.fullmatch(reference or "")
    return default if found is None else _number_of(found[1])


def _number_of(letters: str) -> int:
    made = 0
    for letter in letters.upper():
        made = made * 26 + ord(letter) - 64
    return made - 1


def _letters_of(column: int) -> str:
    made = ""
    column += 1
    while column > 0:
        column, rest = divmod(column - 1, 26)
        made = chr(65 + rest) + made
    return made


def _formula(formula: Element, row: int, column: int, shared: dict[str, _Shared]) -> str:
    """A formula without a value, moved from the cell that it is shared from."""
    base = shared.get(formula.get("si", "")) if formula.get("t") == "shared" else None
    if formula.text or base is None:
        return f"={formula.text}" if formula.text else ""
    down, right = row - base.row, column - base.column

    def moved(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        to = found[3] if found[2] else _letters_of(_number_of(found[3]) + right)
        line = found[5] if found[4] else str(int(found[5]) + down)
        return f"{found[2]}{to}{found[4]}{line}"

    return "=" + _IN_FORMULA.sub(moved, base.text)


def _formats(package: Package, part: str) -> Sequence[str]:
    """The code of the number format of each style of cells."""
    root = package.part(part) if part else None
    if root is None:
        return ()
    own = {
        number(each.get("numFmtId")): each.get("formatCode", "") for each in root.iter("s:numFmt")
    }
    styles = root.find("s:cellXfs")
    made: list[str] = []
    for each in styles if styles is not None else ():
        identity = number(each.get("numFmtId"))
        made.append(own.get(identity) or BUILT_IN.get(identity, GENERAL))
    return made


def _text(element: Element) -> str:
    """The text of a string, its runs joined; how it is pronounced is left out."""
    made: list[str] = []
    for child in element:
        if child.tag == "s:t":
            made.append(child.text or "")
        elif child.tag == "s:r":
            made.append(child.findtext("s:t") or "")
    return _unescaped("".join(made))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text) if "_x" in text else text
