"""Damaged and hostile files of every format, made from seeds: none is stored.

Each is small or made in a moment, so that a reader can be tried on all of them.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import cache, partial

from hostile_packages import Lures, hostile_packages
from hostile_pdf import hostile_pdfs
from hostile_texts import hostile_texts
from small_documents import WORDS, small_documents

Make = Callable[[], bytes]
_DAMAGES_EACH = 12  # files from one valid document
_EMPTY = ("pdf", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", "zip", "tar.gz", "7z", "txt",
          "md", "csv", "json", "ipynb", "html", "eml", "rtf", "srt", "")  # fmt: skip


def hostile_files(lures: Lures) -> dict[str, Make]:
    """How to make the bytes of each file, by its name; the same ones each time."""
    url, file = lures.addresses
    return {
        **hostile_packages(lures),
        **hostile_pdfs(url, file),
        **hostile_texts(url, file),
        **_wrong_endings(),
        **{f"empty.{ending}".rstrip("."): bytes for ending in _EMPTY},
        **_noise(),
        **_damaged(),
    }


def _wrong_endings() -> dict[str, Make]:
    """Valid documents with the ending of the next one."""
    documents = small_documents()
    endings = [*documents][1:] + [*documents][:1]
    return {
        f"{kind.replace('.', '')}.as.{ending}": lambda content=content: content
        for (kind, content), ending in zip(documents.items(), endings, strict=True)
    }


def _noise() -> dict[str, Make]:
    """Random bytes after the first ones of a format."""
    starts = {
        "pdf": b"%PDF-1.7\n",
        "docx": b"PK\x03\x04",
        "rtf": b"{\\rtf1",
        "doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "tar.gz": b"\x1f\x8b\x08\0\0\0\0\0\0\0",
        "bz2": b"BZh9",
        "xz": b"\xfd7zXZ\0",
        "7z": b"7z\xbc\xaf\x27\x1c\0\4",
        "rar": b"Rar!\x1a\x07\x01\0",
        "html": b"<html>",
        "ipynb": b'{"cells": [',
        "srt": b"1\n00:00:01,000 --> 00:00:02,000\n",
        "eml": b"From: a\nTo: b\nSubject: c\nDate: d\n\n",
        "csv": b"a,b\n",
        "txt": b"",
    }
    return {
        f"noise.{ending}": partial(_random_after, start, ending) for ending, start in starts.items()
    }


def _random_after(start: bytes, seed: str) -> bytes:
    return start + random.Random(seed).randbytes(20_000)


def _damaged() -> dict[str, Make]:
    """Each valid document cut, with changed bits, with parts lost, repeated or exchanged."""
    made: dict[str, Make] = {}
    for name, make in {**_library_documents(), **_own_documents()}.items():
        for number in range(_DAMAGES_EACH):
            kind, _, ending = name.partition(".")
            made[f"{kind}{number}.{ending}"] = partial(_damage, make, f"{name}{number}", number)
    return made


def _damage(make: Make, seed: str, number: int) -> bytes:
    content, choose = bytearray(make()), random.Random(seed)
    size = len(content)
    at, length = choose.randrange(size), choose.randint(1, max(1, size // 8))
    match number % 6:
        case 0:
            del content[at:]
        case 1 | 2:
            for _ in range(choose.choice((1, 3, 10, 50))):
                content[choose.randrange(size)] ^= 1 << choose.randrange(8)
        case 3:
            content[at : at + length] = bytes(len(content[at : at + length]))
        case 4:
            content[at:at] = content[at : at + length]
        case _:
            content[at : at + length] = choose.randbytes(length)
    return bytes(content)


def _own_documents() -> dict[str, Make]:
    return {
        f"own.{ending}": lambda content=content: content
        for ending, content in small_documents().items()
    }


def _library_documents() -> dict[str, Make]:
    return {
        "reportlab.pdf": _reportlab,
        "pythondocx.docx": _python_docx,
        "openpyxl.xlsx": _openpyxl,
        "pythonpptx.pptx": _python_pptx,
        "odfpy.odt": _odfpy_text,
        "odfpy.ods": _odfpy_sheet,
    }


@cache
def _reportlab() -> bytes:
    from reportlab.pdfgen.canvas import Canvas

    made = io.BytesIO()
    canvas = Canvas(made, invariant=True)
    for page in range(3):
        for line in range(20):
            canvas.drawString(72, 720 - 20 * line, f"{WORDS} Page {page}, line {line}.")
        canvas.showPage()
    canvas.save()
    return made.getvalue()


@cache
def _python_docx() -> bytes:
    import docx

    document = docx.Document()
    document.add_heading("A heading", 1)
    document.add_paragraph(WORDS, style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    table.cell(0, 0).text = "cell"
    return _saved(document.save)


@cache
def _openpyxl() -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for sheet in (book.create_sheet("One"), book.create_sheet("Two")):
        for row in range(20):
            sheet.append([f"name {row}", row, row / 7, "=A1"])
    return _saved(book.save)


@cache
def _python_pptx() -> bytes:
    import pptx

    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "A title"
    slide.placeholders[1].text = WORDS
    slide.notes_slide.notes_text_frame.text = "Notes"
    return _saved(show.save)


@cache
def _odfpy_text() -> bytes:
    from odf.opendocument import OpenDocumentText
    from odf.text import H, P

    document = OpenDocumentText()
    document.text.addElement(H(outlinelevel=1, text="A heading"))
    document.text.addElement(P(text=WORDS))
    return _saved(document.save)


@cache
def _odfpy_sheet() -> bytes:
    from odf.opendocument import OpenDocumentSpreadsheet
    from odf.table import Table, TableCell, TableRow
    from odf.text import P

    document = OpenDocumentSpreadsheet()
    table, row = Table(name="One"), TableRow()
    for text in ("a", "b", "c"):
        cell = TableCell()
        cell.addElement(P(text=text))
        row.addElement(cell)
    table.addElement(row)
    document.spreadsheet.addElement(table)
    return _saved(document.save)


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    made = io.BytesIO()
    save(made)
    return made.getvalue()
