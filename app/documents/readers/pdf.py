"""Text of PDF files by PDFium: pages in reading order, with tables and headings of the outline."""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from app.documents.pdf.columns import reading_order
from app.documents.pdf.content import Content, page_content, utf16
from app.documents.pdf.grids import with_tables
from app.documents.pdf.library import opened, pdfium
from app.documents.pdf.running import without_running
from app.documents.source import MOST_CHARACTERS, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, PageUnit, Warned

MOST_OUTLINE = 20_000  # entries
DEEPEST_OUTLINE = 6
_NUMBERED = re.compile(r"^[\s\d.]*\d[.)\s]+|[\W_]+")


def read(source: Source) -> Document:
    """The document of a PDF file; raises ExtractionError."""
    with opened(source) as (document, form):
        count = pdfium.FPDF_GetPageCount(document)
        headings = _headings(document)
        warned: dict[DocumentWarning, list[str]] = defaultdict(list)
        pages: list[Page] = []
        size = 0
        contents = without_running(_contents(document, form, count), count)
        for number, content in enumerate(contents):
            source.progress(number, count)
            label = _label(document, number)
            text = _text(content, headings.get(number, []))
            if not text and content.has_picture:
                warned[DocumentWarning.SCANNED].append(label)
            if content.is_damaged or 3 * content.unknown > len(text):
                warned[DocumentWarning.DAMAGED].append(label)
            pages.append(Page(label, text))
            size += len(text)
            if size > MOST_CHARACTERS:
                break
        if not _has_an_end(source):
            warned[DocumentWarning.DAMAGED] = []
        title = utf16(
            lambda buffer, size: pdfium.FPDF_GetMetaText(document, b"Title", buffer, size)
        )
    warnings = tuple(Warned(warning, tuple(labels)) for warning, labels in warned.items())
    return Document(DocumentKind.PDF, tuple(pages), PageUnit.PAGE, title.strip(), warnings)


def _contents(document: Any, form: Any, count: int) -> Iterator[Content]:
    for number in range(count):
        page = pdfium.FPDF_LoadPage(document, number)
        if not page:
            yield Content(is_damaged=True)
            continue
        try:
            yield page_content(page, form)
        finally:
            pdfium.FPDF_ClosePage(page)


def _text(content: Content, headings: list[tuple[int, str]]) -> str:
    blocks = reading_order(with_tables(content.words, content.rules))
    blocks.append(" ".join(content.aside))
    for level, title in headings:
        blocks = _with_heading(blocks, "#" * level, title)
    return "\n\n".join(block for block in blocks if block)


def _with_heading(blocks: list[str], mark: str, title: str) -> list[str]:
    """The blocks, the line that is this title of the outline marked as a heading."""
    for i, block in enumerate(blocks):
        lines = block.split("\n")
        for j, line in enumerate(lines):
            if _folded(line) == title and not line.startswith("#"):
                around = "\n".join(lines[:j]), f"{mark} {line}", "\n".join(lines[j + 1 :])
                return [*blocks[:i], *around, *blocks[i + 1 :]]
    return blocks


def _folded(title: str) -> str:
    """A title without its number, case and punctuation."""
    return _NUMBERED.sub("", title).casefold()


def _headings(document: Any) -> dict[int, list[tuple[int, str]]]:
    """Level and title of the outline's entries by the number of their page."""
    made: dict[int, list[tuple[int, str]]] = defaultdict(list)
    seen: set[int] = set()
    waiting = [(pdfium.FPDFBookmark_GetFirstChild(document, None), 1)]
    while waiting:
        mark, level = waiting.pop()
        address = ctypes.cast(mark, ctypes.c_void_p).value
        if address is None or address in seen or len(seen) > MOST_OUTLINE:
            continue
        seen.add(address)
        title = utf16(
            lambda buffer, size, mark=mark: pdfium.FPDFBookmark_GetTitle(mark, buffer, size)
        )
        target = pdfium.FPDFBookmark_GetDest(document, mark)
        page = pdfium.FPDFDest_GetDestPageIndex(document, target) if target else -1
        if page >= 0 and (folded := _folded(title)):
            made[page].append((level, folded))
        waiting.append((pdfium.FPDFBookmark_GetNextSibling(document, mark), level))
        waiting.append(
            (pdfium.FPDFBookmark_GetFirstChild(document, mark), min(level + 1, DEEPEST_OUTLINE))
        )
    return made


def _label(document: Any, number: int) -> str:
    """A page's label as the file names it, otherwise its number."""
    named = utf16(lambda buffer, size: pdfium.FPDF_GetPageLabel(document, number, buffer, size))
    return named.strip() or str(number + 1)


def _has_an_end(source: Source) -> bool:
    """Whether the file ends as a PDF does: otherwise a part of it is missing."""
    with source.open() as file:
        file.seek(max(0, source.size - 4096))
        end = file.read()
    return b"%%EOF" in end or b"startxref" in end
