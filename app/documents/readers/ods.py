"""Text of OpenDocument spreadsheets: a page for each sheet, its values as they are shown."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from app.documents.office.ooxml import number
from app.documents.office.opendocument import MOST_REPEATED, STYLES, TextReader, opened, repeated
from app.documents.office.sheet import Sheet
from app.documents.office.writing import Blocks, whole
from app.documents.readers.xlsx import HIDDEN
from app.documents.source import MOST_CHARACTERS, Source
from app.domain.documents import Document, DocumentKind, Page, PageUnit

_CELLS = ("table:table-cell", "table:covered-table-cell")


def read(source: Source) -> Document:
    """The document of an OpenDocument spreadsheet; raises ExtractionError."""
    with opened(source) as file:
        title = file.title()
        reader = TextReader(file, file.styles())
        sheets: list[tuple[str, bool, Sheet]] = []
        size = at = 0
        wanted = (
            *STYLES,
            "table:table-row",
            "office:master-styles",
            "table:shapes",
            "office:forms",
        )
        wanted += ("table:tracked-changes", "office:meta")
        for element in file.elements("content", *wanted, opened="table:table"):
            if element.tag == "table:table":
                size += sheets[-1][2].size if sheets else 0
                style = element.get("table:style-name", "")
                is_hidden = reader.styles.value(style, "table:display") == "false"
                sheets.append((element.get("table:name", ""), is_hidden, Sheet()))
                at = 0
            elif element.tag == "table:table-row" and sheets:
                at += _add(element, at, sheets[-1][2], reader)
            else:
                reader.styles.add(element)
            if sheets and size + sheets[-1][2].size > MOST_CHARACTERS:
                break
        warnings = file.warnings
    pages: list[Page] = []
    for name, is_hidden, sheet in sheets:
        text = sheet.text
        pages.append(Page(name, f"{HIDDEN}\n\n{text}" if is_hidden and text else text))
    return whole(Document(DocumentKind.SHEETS, tuple(pages), PageUnit.SHEET, title, warnings))


def _add(row: Element, at: int, sheet: Sheet, reader: TextReader) -> int:
    """Adds a row, as often as it is there; the number of rows."""
    cells: list[tuple[int, str]] = []
    column = 0
    for cell in row:
        if cell.tag not in _CELLS:
            continue
        text = _shown(cell, reader) if cell.tag == _CELLS[0] else ""
        count = max(1, number(cell.get("table:number-columns-repeated"), 1))
        if text:
            cells.extend((column + i, text) for i in range(min(count, MOST_REPEATED)))
        column += count
    rows = max(1, number(row.get("table:number-rows-repeated"), 1))
    if cells:
        for i in range(repeated(row, "table:number-rows-repeated")):
            if not sheet.is_full:
                sheet.add(at + i, cells)
    return rows


def _shown(cell: Element, reader: TextReader) -> str:
    """A cell's text as it is shown; without one its value, or the formula."""
    blocks = Blocks()
    reader.blocks_of(cell, blocks)
    if text := blocks.cell:
        return text
    for key in ("office:string-value", "office:date-value", "office:time-value", "office:value"):
        if value := cell.get(key):
            return value
    if value := cell.get("office:boolean-value"):
        return value.upper()
    formula = cell.get("table:formula", "")
    if formula and not cell.get("office:value-type"):
        return "=" + formula.partition("=")[2]
    return ""
