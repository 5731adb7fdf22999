"""Pages of PDF files as pictures: their size, what is painted, and pages that lie about their size."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from app.documents.extract import PAGE_SIDE, Extractor
from app.documents.packing import unpack_picture
from app.documents.pdf.page_picture import page_picture
from app.documents.source import ExtractionError, ExtractionFault, Source
from document_writers import PdfPage, pdf
from small_documents import pdf as pdf_of
from small_documents import pdf_page


def _painted(tmp_path: Path, data: bytes, index: int = 0, longest: int = 400) -> Image.Image:
    (tmp_path / "ü a.pdf").write_bytes(data)
    content = page_picture(Source(tmp_path / "ü a.pdf"), index, longest)
    return Image.open(io.BytesIO(content))


def _with_box(box: bytes) -> bytes:
    objects = pdf_page(b"1 0 0 rg 0 0 99999999 99999999 re f")
    objects[2] = objects[2].replace(b"[0 0 612 792]", box)
    return pdf_of(objects)


def test_a_page_is_painted_where_its_content_is(tmp_path: Path) -> None:
    data = pdf([PdfPage(), PdfPage(600, 400).picture(300, 0, 300, 200)])
    first, second = (_painted(tmp_path, data, index) for index in (0, 1))
    assert (first.format, first.mode, max(first.size)) == ("PNG", "RGB", 400)
    assert first.getextrema() == ((255, 255),) * 3  # it is empty, and white
    assert second.size == (400, 267)
    assert second.getpixel((100, 200)) == (255, 255, 255)
    assert second.getpixel((300, 60)) != (255, 255, 255)


def test_a_turned_page_is_upright(tmp_path: Path) -> None:
    data = pdf([PdfPage(600, 300, 90).picture(0, 0, 300, 150)])
    picture = _painted(tmp_path, data)
    assert picture.size == (200, 400)
    assert picture.getpixel((150, 100)) != (255, 255, 255)
    assert picture.getpixel((50, 100)) == (255, 255, 255)


def test_what_was_entered_in_a_form_is_painted(tmp_path: Path) -> None:
    page = PdfPage(600, 300).field(
        50, 100, 400, 150, "name", "/FT /Tx /V (Ada) /DA (/F1 40 Tf 0 g)"
    )
    empty, filled = (
        _painted(tmp_path, pdf([each])).convert("L").getextrema() for each in (PdfPage(), page)
    )
    assert empty == (255, 255)
    assert filled[0] < 255


@pytest.mark.parametrize(
    ("box", "size"),
    [
        (b"[0 0 14400 14400]", (400, 400)),
        (b"[0 0 1000000000 1000000000]", (400, 400)),
        (b"[0 0 99999999 1]", (400, 1)),
        (b"[0 0 10 20]", (80, 160)),
        (b"[-300 -400 300 400]", (300, 400)),
        (b"[600 800 0 0]", (300, 400)),
        (b"[0 0 0 0]", (309, 400)),  # PDFium takes that of a letter
        (b"[0 0 nan inf]", (309, 400)),
    ],
)
def test_a_page_of_any_size_becomes_a_bounded_picture(
    tmp_path: Path, box: bytes, size: tuple[int, int]
) -> None:
    assert _painted(tmp_path, _with_box(box)).size == size


def test_a_page_that_is_not_there_or_a_damaged_file_is_said(tmp_path: Path) -> None:
    for data, index in ((pdf([PdfPage()]), 1), (pdf([PdfPage()]), -1), (b"%PDF-1.7 no more", 0)):
        with pytest.raises(ExtractionError) as raised:
            _painted(tmp_path, data, index)
        assert raised.value.fault is ExtractionFault.DAMAGED


def test_a_child_process_paints_and_says_what_is_wrong(tmp_path: Path) -> None:
    extractor = Extractor()
    try:
        path = tmp_path / "report.pdf"
        path.write_bytes(pdf([PdfPage().text(72, 72, "The harbour")]))
        picture = Image.open(io.BytesIO(extractor.page(path, 0)))
        assert max(picture.size) == PAGE_SIDE
        with pytest.raises(ExtractionError) as raised:
            extractor.page(path, 7)
        assert raised.value.fault is ExtractionFault.DAMAGED
        with pytest.raises(ExtractionError) as raised:
            extractor.page(path, 0, lambda: True)
        assert raised.value.fault is ExtractionFault.CANCELLED
    finally:
        extractor.close()


@pytest.mark.parametrize(
    "pieces", [[], [b"{}"], [b"{"], [b"\x89PNG", b"\x89PNG"], [b'{"fault": 1}']]
)
def test_what_is_no_picture_is_not_believed(pieces: list[bytes]) -> None:
    with pytest.raises(ExtractionError) as raised:
        unpack_picture(pieces)
    assert raised.value.fault is ExtractionFault.CRASHED
