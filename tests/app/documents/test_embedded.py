"""Pictures in documents: which are listed, their bytes, and files that lie about them."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image

from app.documents import embedded
from app.documents.extract import Extractor
from app.documents.packing import unpack_names
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import MOST_EMBEDDED
from small_documents import docx, epub, package, pptx


def _picture(color: str = "red", format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), color).save(file, format)
    return file.getvalue()


def _source(tmp_path: Path, content: bytes, name: str) -> Source:
    path = tmp_path / name
    path.write_bytes(content)
    return Source(path, name)


RED, BLUE = _picture("red"), _picture("blue", "JPEG")
MEDIA = {
    "word/media/image10.png": RED,
    "word/media/image2.jpeg": BLUE,
    "word/media/chart.emf": b"\1\0\0\0",
    "docProps/thumbnail.jpeg": BLUE,
}


def _odt() -> bytes:
    return package(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": "<office:document-content "
            'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"/>',
            "Pictures/100.png": RED,
            "Thumbnails/thumbnail.png": BLUE,
        }
    )


@pytest.mark.parametrize(
    ("content", "name", "found"),
    [
        (docx("<w:p/>", **MEDIA), "a.docx", {"image2.jpeg": BLUE, "image10.png": RED}),
        (pptx("", **{"ppt/media/image1.png": RED}), "a.pptx", {"image1.png": RED}),
        (epub("<p/>", **{"images/cover.jpg": BLUE}), "a.epub", {"cover.jpg": BLUE}),
        (_odt(), "a.odt", {"100.png": RED}),
        (b"Text with image2.png in it", "a.txt", {}),
    ],
)
def test_the_pictures_of_a_package_are_listed_in_order_and_read(
    tmp_path: Path, content: bytes, name: str, found: dict[str, bytes]
) -> None:
    source = _source(tmp_path, content, name)
    names = embedded.names(source)
    assert names == list(found)
    assert [embedded.content(source, n) for n in range(len(names))] == list(found.values())


def test_the_pictures_in_the_addresses_of_a_page_are_listed(tmp_path: Path) -> None:
    first, second = (base64.b64encode(each).decode("ascii") for each in (RED, BLUE))
    page = (
        f'<html><p>Two</p><img src="data:image/png;base64,{first}">'
        f"<img src='DATA:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode('ascii')}'>"
        f"<img src='data:image/png;base64,A'><img src='https://example.org/a.png'>"
        f"<style>p {{ background: url(data:image/jpeg;base64,{second[:40]}%0A{second[40:]}) }}</style>"
    )
    source = _source(tmp_path, page.encode(), "page.html")
    assert embedded.names(source) == ["1.png", "2.jpg"]
    assert [embedded.content(source, n) for n in (0, 1)] == [RED, BLUE]


def test_there_are_no_more_than_the_limit(tmp_path: Path) -> None:
    many = {f"word/media/{n}.png": RED for n in range(MOST_EMBEDDED + 9)}
    names = embedded.names(_source(tmp_path, docx("<w:p/>", **many), "a.docx"))
    assert names == [f"{n}.png" for n in range(MOST_EMBEDDED)]
    one = f"<img src='data:image/png;base64,{base64.b64encode(RED).decode('ascii')}'>"
    page = f"<html>{one * (MOST_EMBEDDED + 9)}"
    assert len(embedded.names(_source(tmp_path, page.encode(), "a.html"))) == MOST_EMBEDDED


@pytest.mark.parametrize("index", [-1, 2, 9999])
def test_a_picture_that_is_not_there_is_said(tmp_path: Path, index: int) -> None:
    for content, name in ((docx("<w:p/>", **MEDIA), "a.docx"), (b"<html>", "a.html")):
        with pytest.raises(ExtractionError) as raised:
            embedded.content(_source(tmp_path, content, name), index)
        assert raised.value.fault is ExtractionFault.DAMAGED


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = {"word/media/image1.png": RED + bytes(30_000_000)}
    source = _source(tmp_path, docx("<w:p/>", **bomb), "a.docx")
    assert embedded.names(source) == ["image1.png"]
    with pytest.raises(ExtractionError) as raised:
        embedded.content(source, 0)
    assert raised.value.fault is ExtractionFault.TOO_LARGE


def test_a_child_process_lists_reads_and_says_what_is_wrong(tmp_path: Path) -> None:
    extractor = Extractor()
    media = {**MEDIA, "word/media/image3.png": b"\x89PNG no more"}
    path = _source(tmp_path, docx("<w:p/>", **media), "a.docx").path
    try:
        names = extractor.embedded_names(path, "a.docx")
        assert names == ("image2.jpeg", "image3.png", "image10.png")
        assert extractor.embedded(path, "a.docx", 2) == RED
        copy = extractor.embedded_copy(path, "a.docx", 0, 20)
        assert (copy.picture, copy.size) == ((40, 30), (20, 15))
        for call, fault in (
            (lambda: extractor.embedded_copy(path, "a.docx", 1, 20), ExtractionFault.DAMAGED),
            (lambda: extractor.embedded(path, "a.docx", 7), ExtractionFault.DAMAGED),
        ):
            with pytest.raises(ExtractionError) as raised:
                call()
            assert raised.value.fault is fault
    finally:
        extractor.close()


@pytest.mark.parametrize("piece", [b"", b"[]", b"{}", b'{"names": 1}', b"\xff"])
def test_what_are_no_names_is_not_believed(piece: bytes) -> None:
    with pytest.raises(ExtractionError) as raised:
        unpack_names([piece], 9)
    assert raised.value.fault is ExtractionFault.CRASHED
    assert unpack_names([b'{"names": ["a\\nb", 7, "c"]}'], 2) == ("a b", "7")
