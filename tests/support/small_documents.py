"""Small valid documents of each format, written by hand: the bases of damaged and hostile ones."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from xml.sax.saxutils import escape

from archive_samples import RAR_4, RAR_5, SEVEN_ZIP, SEVEN_ZIP_PLAIN
from raw_zip import Raw, raw_zip

WORDS = "Tokonoma reads the third sentence of this document."
_OFFICE = "http://schemas.openxmlformats.org"
_RELATIONSHIPS = f"{_OFFICE}/officeDocument/2006/relationships"
_MAIN = "application/vnd.openxmlformats-officedocument"
W = f'xmlns:w="{_OFFICE}/wordprocessingml/2006/main"'
S = f'xmlns="{_OFFICE}/spreadsheetml/2006/main" xmlns:r="{_RELATIONSHIPS}"'
P = (
    f'xmlns:p="{_OFFICE}/presentationml/2006/main" xmlns:a="{_OFFICE}/drawingml/2006/main" '
    f'xmlns:r="{_RELATIONSHIPS}"'
)
_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
ODF = " ".join(
    f'xmlns:{name}="{_OASIS}:{name if name != "draw" else "drawing"}:1.0"'
    for name in ("office", "text", "table", "draw", "presentation", "style")
)


def package(files: Mapping[str, str | bytes | Raw]) -> bytes:
    """A zip file of these entries."""
    made: list[Raw] = []
    for name, content in files.items():
        if isinstance(content, Raw):
            made.append(Raw(**{**content.__dict__, "name": name}))
        else:
            data = content.encode() if isinstance(content, str) else content
            made.append(Raw(name, data, method=0 if name == "mimetype" else 8))
    return raw_zip(made)


def relationships(targets: Mapping[str, str], mode: str = "") -> str:
    """A part of relationships: types by their targets."""
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{_RELATIONSHIPS}/{kind}" '
        f'Target="{escape(target)}"{mode}/>'
        for number, (target, kind) in enumerate(targets.items(), 1)
    )
    return f'<Relationships xmlns="{_OFFICE}/package/2006/relationships">{rows}</Relationships>'


def content_types(parts: Mapping[str, str]) -> str:
    """The list of content types: the main ones by the names of their parts."""
    rows = "".join(
        f'<Override PartName="/{name}" ContentType="{_MAIN}.{kind}+xml"/>'
        for name, kind in parts.items()
    )
    return f'<Types xmlns="{_OFFICE}/package/2006/content-types">{rows}</Types>'


def docx(body: str = "", prologue: str = "", **others: str | bytes | Raw) -> bytes:
    """A Word document; `others`: more entries by their names."""
    body = body or f"<w:p><w:r><w:t>{WORDS}</w:t></w:r></w:p>"
    return docx_of(f"{prologue}<w:document {W}><w:body>{body}</w:body></w:document>", **others)


def docx_of(document: str | bytes | Raw, **others: str | bytes | Raw) -> bytes:
    """A Word document of this main part."""
    return package(
        {
            "[Content_Types].xml": content_types(
                {"word/document.xml": "wordprocessingml.document.main"}
            ),
            "_rels/.rels": relationships({"word/document.xml": "officeDocument"}),
            "word/document.xml": document,
            **others,
        }
    )


def xlsx(rows: str = "", sheets: int = 1, **others: str | bytes | Raw) -> bytes:
    """A workbook whose first sheet has these rows."""
    rows = rows or (
        '<row r="1"><c r="A1" t="inlineStr"><is><t>Name</t></is></c><c r="B1"><v>5</v></c></row>'
    )
    numbers = range(1, sheets + 1)
    listed = "".join(
        f'<sheet name="S{each}" sheetId="{each}" r:id="rId{each}"/>' for each in numbers
    )
    files: dict[str, str | bytes | Raw] = {
        "[Content_Types].xml": content_types(
            {"xl/workbook.xml": "spreadsheetml.sheet.main"}
            | {f"xl/worksheets/sheet{each}.xml": "spreadsheetml.worksheet" for each in numbers}
        ),
        "_rels/.rels": relationships({"xl/workbook.xml": "officeDocument"}),
        "xl/workbook.xml": f"<workbook {S}><sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relationships(
            {f"worksheets/sheet{each}.xml": "worksheet" for each in numbers}
        ),
    }
    for each in numbers:
        files[f"xl/worksheets/sheet{each}.xml"] = (
            f"<worksheet {S}><sheetData>{rows}</sheetData></worksheet>"
        )
    return package(files | others)


def pptx(shapes: str = "", slides: int = 1, **others: str | bytes | Raw) -> bytes:
    """Slides that all have these shapes."""
    shapes = shapes or f"<p:sp><p:txBody><a:p><a:r><a:t>{WORDS}</a:t></a:r></a:p></p:txBody></p:sp>"
    numbers = range(1, slides + 1)
    listed = "".join(f'<p:sldId id="{255 + each}" r:id="rId{each}"/>' for each in numbers)
    files: dict[str, str | bytes | Raw] = {
        "[Content_Types].xml": content_types(
            {"ppt/presentation.xml": "presentationml.presentation.main"}
        ),
        "_rels/.rels": relationships({"ppt/presentation.xml": "officeDocument"}),
        "ppt/presentation.xml": (
            f"<p:presentation {P}><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>"
        ),
        "ppt/_rels/presentation.xml.rels": relationships(
            {f"slides/slide{each}.xml": "slide" for each in numbers}
        ),
    }
    for each in numbers:
        files[f"ppt/slides/slide{each}.xml"] = (
            f"<p:sld {P}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        )
    return package(files | others)


def odf(kind: str, body: str, prologue: str = "") -> bytes:
    """An OpenDocument file: `text`, `spreadsheet` or `presentation`."""
    return package(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": (
                f"{prologue}<office:document-content {ODF}><office:body><office:{kind}>{body}"
                f"</office:{kind}></office:body></office:document-content>"
            ),
        }
    )


def odt(body: str = "", prologue: str = "") -> bytes:
    return odf("text", body or f"<text:p>{WORDS}</text:p>", prologue)


def ods(rows: str = "") -> bytes:
    rows = rows or (
        "<table:table-row><table:table-cell><text:p>Name</text:p></table:table-cell>"
        "</table:table-row>"
    )
    return odf("spreadsheet", f'<table:table table:name="One">{rows}</table:table>')


def odp(shapes: str = "") -> bytes:
    shapes = (
        shapes
        or f"<draw:frame><draw:text-box><text:p>{WORDS}</text:p></draw:text-box></draw:frame>"
    )
    return odf("presentation", f'<draw:page draw:name="One">{shapes}</draw:page>')


def epub(chapter: str = "", spine: str = "", **others: str | bytes | Raw) -> bytes:
    """A book of one chapter."""
    chapter = chapter or f"<html><body><h1>One</h1><p>{WORDS}</p></body></html>"
    spine = spine or '<itemref idref="one"/>'
    return package(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": (
                '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
                '<rootfile full-path="book.opf"/></rootfiles></container>'
            ),
            "book.opf": (
                '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
                '<item id="one" href="one.xhtml" media-type="application/xhtml+xml"/></manifest>'
                f"<spine>{spine}</spine></package>"
            ),
            "one.xhtml": chapter,
            **others,
        }
    )


def pdf(objects: list[bytes], root: int = 1, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1, with a true table of them."""
    made = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    places: list[int] = []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % place for place in places)
    made += b"trailer\n<< /Size %d /Root %d 0 R %s >>\n" % (len(objects) + 1, root, trailer)
    return bytes(made) + b"startxref\n%d\n%%%%EOF\n" % table


def stream(content: bytes, facts: bytes = b"") -> bytes:
    """A stream of a PDF."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), facts, content)


def pdf_page(content: bytes = b"", more: bytes = b"", page: bytes = b"") -> list[bytes]:
    """The objects of a PDF of one page: catalog, tree, page, content, font, and room for more."""
    content = content or b"BT /F 12 Tf 72 700 Td (%s) Tj ET" % WORDS.encode()
    return [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % more,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F 5 0 R >> %s >> >>" % page,
        stream(content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]


def tar_gz() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as target:
        for number in range(5):
            info = tarfile.TarInfo(f"folder/file{number}")
            info.size = 1000
            target.addfile(info, io.BytesIO(bytes(1000)))
    return made.getvalue()


MAIL = (
    b"From: Ann <ann@example.org>\r\nTo: Bob <bob@example.org>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
    b"Date: Mon, 6 May 2024 07:08:09 +0200\r\nMIME-Version: 1.0\r\n"
    b'Content-Type: multipart/alternative; boundary="b"\r\n\r\n'
    b"--b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    b"VG9rb25vbWEgcmVhZHMgdGhpcy4=\r\n"
    b"--b\r\nContent-Type: text/html\r\n\r\n<p>Tokonoma reads <b>this</b>.</p>\r\n--b--\r\n"
)
WEB_ARCHIVE = (
    b"From: <Saved by a browser>\r\nSubject: Page\r\nDate: Mon, 6 May 2024 07:08:09 +0200\r\n"
    b'MIME-Version: 1.0\r\nContent-Type: multipart/related; type="text/html"; boundary="b"\r\n\r\n'
    b"--b\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n"
    b"Content-Location: http://example.org/\r\n\r\n<html><body><p>Tokonoma=20reads</p></body>"
    b"</html>\r\n--b--\r\n"
)
NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", WORDS]},
            {
                "cell_type": "code",
                "execution_count": 1,
                "metadata": {},
                "source": "print(1)",
                "outputs": [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}],
            },
        ],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
).encode()
SRT = b"".join(
    b"%d\r\n00:00:%02d,000 --> 00:00:%02d,500\r\nLine <i>%d</i>\r\n\r\n" % (n, n, n, n)
    for n in range(1, 40)
)
RTF = (
    b"{\\rtf1\\ansi\\ansicpg1252{\\fonttbl{\\f0 Times;}}{\\*\\generator x;}\\f0 Tokonoma reads "
    b"{\\b this} Stra\\'dfe \\u8364?\\par\n\\trowd\\cellx100\\cellx200 a\\cell b\\cell\\row\\pard end}"
)
HTML = (
    f"<!DOCTYPE html><html><head><title>T</title></head><body><h1>Head</h1><p>{WORDS}</p>"
    "<table><tr><th>a<th>b<tr><td>1<td>2</table><ul><li>x<li>y</ul></body></html>"
).encode()


def small_documents() -> dict[str, bytes]:
    """A valid document of each format, by the ending of its name."""
    return {
        "pdf": pdf(pdf_page()),
        "docx": docx(),
        "xlsx": xlsx(),
        "pptx": pptx(),
        "odt": odt(),
        "ods": ods(),
        "odp": odp(),
        "epub": epub(),
        "html": HTML,
        "mhtml": WEB_ARCHIVE,
        "eml": MAIL,
        "mbox": (b"From ann@example.org Mon May  6 07:08:09 2024\n" + MAIL + b"\n") * 3,
        "ipynb": NOTEBOOK,
        "json": b'{"a": [1, 2.5, null, true], "b": {"c": "d"}, "e": "\\ud83d\\ude00"}',
        "csv": b'name,amount,note\n"Smith, J.",5,"say ""hi"""\nM\xfcller,6,\n' * 5,
        "rtf": RTF,
        "srt": SRT,
        "md": b"# Title\n\nSome *words*.\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n```\ncode\n```\n",
        "txt": "Ein Satz über Straßen.\n".encode("latin-1") * 20,
        "zip": package({"a.txt": "a", "folder/b.txt": "b" * 100}),
        "tar.gz": tar_gz(),
        "7z": SEVEN_ZIP,
        "plain.7z": SEVEN_ZIP_PLAIN,
        "5.rar": RAR_5,
        "4.rar": RAR_4,
    }
