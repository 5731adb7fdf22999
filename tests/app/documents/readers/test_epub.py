"""Books of EPUB 2 and 3, chapter by chapter."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import DocumentKind, PageUnit
from text_files import Read, reader, warned

CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)
XHTML = (
    '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml" '
    'xmlns:epub="http://www.idpf.org/2007/ops"><head><title>x</title></head><body>{}</body></html>'
)


@pytest.fixture
def epub(tmp_path: Path) -> Read:
    return reader(tmp_path, "epub")


def _zipped(files: dict[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        for name, content in files.items():
            package.writestr(name, content)
    return made.getvalue()


def _opf(items: str, spine: str, toc: str = "") -> str:
    return (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Tides &amp; moons'
        f"</dc:title><dc:creator>Ann</dc:creator></metadata><manifest>{items}</manifest>"
        f"<spine{toc}>{spine}</spine></package>"
    )


def _book(chapters: dict[str, str], extra: dict[str, str | bytes], toc: str = "") -> bytes:
    """A book of chapters in files of these names, whose manifest has the extra files too."""
    kinds = {"nav.xhtml": ' properties="nav"', "toc.ncx": ' media-type="application/x-dtbncx+xml"'}
    names = [*chapters, *(name for name in extra if "/" not in name)]
    items = "".join(f'<item id="{name}" href="{name}"{kinds.get(name, "")}/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    return _zipped(
        {
            "META-INF/container.xml": CONTAINER,
            "OEBPS/book.opf": _opf(items, spine, toc),
            **{f"OEBPS/{name}": XHTML.format(body) for name, body in chapters.items()},
            **{name if "/" in name else f"OEBPS/{name}": body for name, body in extra.items()},
        }
    )


NAV = XHTML.format(
    '<nav epub:type="landmarks"><ol><li><a href="b.xhtml">Start</a></li></ol></nav>'
    '<nav epub:type="toc"><h1>Contents</h1><ol><li><a href="b.xhtml">Ebb <i>one</i></a><ol>'
    '<li><a href="b.xhtml#s1">Section</a></li></ol></li><li><a href="a%20b.xhtml">Flood</a></li></ol></nav>'
)
CHAPTERS = {
    "cover.xhtml": '<img src="cover.jpg" alt=""/>',
    "b.xhtml": '<h1>Ebb one</h1><p>Water falls.<a epub:type="noteref" href="#n">1</a></p><p id="s1">More.</p>'
    '<aside epub:type="footnote" id="n"><p>1. A note.</p></aside>',
    "c.xhtml": "<p>It goes on in the next file.</p>",
    "a b.xhtml": '<h1>Flood</h1><a id="x"/><p>Water rises, see <a href="b.xhtml#s1">there</a>.</p>',
}
READ = [
    (
        "Ebb one",
        "# Ebb one\n\nWater falls.[1]\n\nMore.\n\n1. A note.\n\nIt goes on in the next file.",
    ),
    ("Flood", "# Flood\n\nWater rises, see there."),
]


def _pages(document: object) -> list[tuple[str, str]]:
    return [(page.label, page.text) for page in document.pages]  # type: ignore[attr-defined]


def test_epub_3_in_reading_order_with_the_titles_of_its_contents(epub: Read) -> None:
    document = epub(_book(CHAPTERS, {"nav.xhtml": NAV}))
    assert document.kind is DocumentKind.EPUB
    assert document.unit is PageUnit.CHAPTER
    assert document.title == "Tides & moons"
    assert _pages(document) == READ
    assert not document.warnings


NCX = (
    '<?xml version="1.0"?><!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "x.dtd"><ncx><docTitle>'
    '<text>Book</text></docTitle><navMap><navPoint id="1"><navLabel><text>Ebb one</text></navLabel>'
    '<content src="b.xhtml"/><navPoint id="2"><navLabel><text>Section</text></navLabel>'
    '<content src="b.xhtml#s1"/></navPoint></navPoint><navPoint id="3"><navLabel><text>Flood</text>'
    '</navLabel><content src="a%20b.xhtml"/></navPoint></navMap></ncx>'
)


def test_epub_2(epub: Read) -> None:
    document = epub(_book(CHAPTERS, {"toc.ncx": NCX}, ' toc="toc.ncx"'))
    assert _pages(document) == READ


@pytest.mark.parametrize(
    "nav",
    [
        "",
        "<nav",
        XHTML.format("<p>no list</p>"),
        XHTML.format("<nav><a href='gone.xhtml'>G</a></nav>"),
    ],
)
def test_without_contents_each_file_is_a_chapter(epub: Read, nav: str) -> None:
    document = epub(_book(CHAPTERS, {"nav.xhtml": nav}))
    assert [label for label, _ in _pages(document)] == ["Ebb one", "2", "Flood"]


def test_a_file_of_several_chapters_is_divided_where_they_begin(epub: Read) -> None:
    ncx = "<ncx><navMap>" + "".join(
        f'<navPoint><navLabel><text>Chapter {at}</text></navLabel><content src="{name}#c{at}"/></navPoint>'
        for at, name in ((1, "a.xhtml"), (2, "a.xhtml"), (3, "b.xhtml"))
    )
    chapters = {
        "a.xhtml": '<h2 id="c1">One</h2><p>1</p><h2 id="c2">Two</h2><p>2</p>',
        "b.xhtml": '<p>2 goes on</p><h2 id="c3">Three</h2><p>3</p><h2 id="c4">no entry</h2>',
    }
    chapters["a.xhtml"] = "<p>Before</p>" + chapters["a.xhtml"]
    document = epub(_book(chapters, {"toc.ncx": ncx}))
    labels = [label for label, _ in _pages(document)]
    assert labels == ["1", "Chapter 1", "Chapter 2", "Chapter 3"]
    assert "2 goes on" in document.pages[3].text or "2 goes on" in document.pages[2].text
    assert document.pages[2].text.startswith("## Two\n\n2")


def test_copy_protection_is_said(epub: Read) -> None:
    encryption = (
        '<encryption><EncryptedData><EncryptionMethod Algorithm="{}"/><CipherData>'
        '<CipherReference URI="OEBPS/{}"/></CipherData></EncryptedData></encryption>'
    )
    aes = "http://www.w3.org/2001/04/xmlenc#aes128-cbc"
    with pytest.raises(ExtractionError) as raised:
        epub(_book(CHAPTERS, {"META-INF/encryption.xml": encryption.format(aes, "b.xhtml")}))
    assert raised.value.fault is ExtractionFault.PROTECTED
    fonts = encryption.format("http://www.idpf.org/2008/embedding", "b.xhtml")
    assert epub(_book(CHAPTERS, {"META-INF/encryption.xml": fonts})).pages


def test_damaged_books(epub: Read) -> None:
    whole = _book(CHAPTERS, {"nav.xhtml": NAV})
    files = {info.filename: "" for info in zipfile.ZipFile(io.BytesIO(whole)).infolist()}
    for name in files:
        files[name] = zipfile.ZipFile(io.BytesIO(whole)).read(name).decode()
    del files["mimetype"]
    without = {name: text for name, text in files.items() if name != "OEBPS/b.xhtml"}
    assert warned(epub(_zipped(without))) == ["damaged"]
    loose = {"b.xhtml": XHTML.format("<h1>B</h1>"), "a.xhtml": XHTML.format("<h1>A</h1>")}
    assert [label for label, _ in _pages(epub(_zipped(loose)))] == ["A", "B"]
    without = {name: text for name, text in files.items() if not name.startswith("META")}
    assert _pages(epub(_zipped(without))) == READ
    for content in (_zipped({}), whole[:200], b"PK\x03\x04", b""):
        with pytest.raises(ExtractionError) as raised:
            epub(content)
        assert raised.value.fault is ExtractionFault.DAMAGED


def test_names_that_lead_outside_and_entities_do_nothing(epub: Read) -> None:
    body = '<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]><html><body><p>a&x;b</p></body></html>'
    document = epub(_book({"a.xhtml": "<p>a</p>", "../../../etc/passwd": "<p>b</p>"}, {}))
    assert "root:" not in document.text
    book = _book({}, {})
    assert book
    evil = _zipped({"a.xhtml": body})
    assert epub(evil).text == "a&x;b"


def test_an_old_encoding_of_a_chapter(epub: Read) -> None:
    page = XHTML.replace("utf-8", "windows-1251").format("<p>Привет, мир</p>")
    assert epub(_zipped({"a.xhtml": page.encode("cp1251")})).text == "Привет, мир"
