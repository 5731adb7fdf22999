"""Documents that packages carry as samples, beside what the packages themselves read of them.

`DOCUMENT_SAMPLES` names a folder with source archives of packages, unpacked.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from app.documents.readers.package import Package
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document

FOLDER = os.environ.get("DOCUMENT_SAMPLES", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="DOCUMENT_SAMPLES names no folder with documents"),
]
_WORD = re.compile(r"\w{2,}")


def samples(*endings: str) -> list[Path]:
    found = (path for path in Path(FOLDER).rglob("*") if path.suffix.lower() in endings)
    return sorted(path for path in found if path.is_file())


def read(kind: str, path: Path) -> Document | ExtractionFault:
    try:
        return import_module(f"app.documents.readers.{kind}").read(Source(path))
    except ExtractionError as error:
        return error.fault


def words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))


def of_docx(path: Path) -> Iterator[str]:
    import docx

    made = docx.Document(str(path))
    yield from (each.text for each in made.paragraphs)
    yield from (cell.text for table in made.tables for cell in table._cells)


def of_pptx(path: Path) -> Iterator[str]:
    from pptx import Presentation

    for slide in Presentation(str(path)).slides:
        for shape in slide.shapes:
            is_number = shape.is_placeholder and shape.placeholder_format.type in (13, 15, 16)
            if shape.has_text_frame and not is_number:
                yield shape.text_frame.text
            elif shape.has_table:
                yield from (cell.text for row in shape.table.rows for cell in row.cells)


def of_xlsx(path: Path) -> Iterator[str]:
    from openpyxl import load_workbook

    for sheet in load_workbook(str(path), data_only=True).worksheets:
        for row in sheet.iter_rows(values_only=True):
            yield from (value for value in row if isinstance(value, str))


def of_odf(path: Path) -> Iterator[str]:
    from odf.opendocument import load

    def inside(element) -> Iterator[str]:
        """The texts of paragraphs, each of its own; comments are left out."""
        own = ""
        for child in element.childNodes:
            if child.nodeType == child.TEXT_NODE:
                own += child.data
            elif child.qname[1] in ("p", "h"):
                yield from inside(child)
            elif child.qname[1] in ("tab", "s", "line-break"):
                own += " "
            elif child.qname[1] != "annotation" and not child.qname[1].endswith("-source"):
                pieces = list(inside(child))
                own += pieces.pop() if pieces else " "
                yield from pieces
        yield own

    yield from inside(load(str(path)).body)


KINDS: dict[str, tuple[tuple[str, ...], Callable[[Path], Iterator[str]]]] = {
    "docx": ((".docx", ".docm", ".dotx"), of_docx),
    "pptx": ((".pptx", ".pptm"), of_pptx),
    "xlsx": ((".xlsx", ".xlsm"), of_xlsx),
    "odt": ((".odt", ".ott"), of_odf),
    "odp": ((".odp",), of_odf),
    "ods": ((".ods",), of_odf),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_that_the_library_of_a_format_reads_is_read(kind: str) -> None:
    endings, peer = KINDS[kind]
    missing: dict[str, Counter[str]] = {}
    compared = 0
    for path in samples(*endings):
        found = read(kind, path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = words("\n".join(peer(path)))
        except Exception:  # noqa: BLE001 - the sample is one that the library itself refuses
            continue
        if not isinstance(found, Document):
            with Package(Source(path)) as package:  # refused, as it declares an entity
                assert found is ExtractionFault.DAMAGED, path
                assert any(b"<!ENTITY" in package.read(name) for name in package.names), path
            continue
        compared += 1
        if lost := expected - words(found.text):
            missing[path.name] = lost
    assert compared
    assert missing == {}


def test_every_pdf_is_read_or_told() -> None:
    paths = samples(".pdf")
    assert paths
    for path in paths:
        found = read("pdf", path)
        if isinstance(found, Document):
            assert found.pages or found.warnings or not found.text
        else:
            assert found in (ExtractionFault.DAMAGED, ExtractionFault.PROTECTED), path
