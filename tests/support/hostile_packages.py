"""Hostile packages: zip bombs, lying headers, XML that grows, refers outside or never ends."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import small_documents as small
from raw_zip import Raw, bomb, raw_zip

Make = Callable[[], bytes]
Files = dict[str, Make]


@dataclass(frozen=True)
class Lures:
    """What hostile files refer to: an address that hears of a connection, a file not to be read."""

    url: str
    file: Path

    @property
    def addresses(self) -> tuple[str, str]:
        return self.url + "/lure", self.file.as_uri()


def hostile_packages(lures: Lures) -> Files:
    """By their names."""
    return {
        **_zips(),
        **_archives(),
        **_xml(lures),
        **_word(lures),
        **_sheets(lures),
        **_slides(lures),
        **_open_documents(lures),
        **_books(lures),
    }


def _document_bomb(make: Callable[[Raw], bytes], start: str, block: str, end: str) -> bytes:
    """A package whose main part unpacks to a gigabyte."""
    repeated = block.encode() * (1_000_000 // len(block))
    return make(bomb(repeated, 1000, start.encode(), end.encode()))


def _zips() -> Files:
    names = ("../../evil.txt", "/etc/passwd", "C:\\Windows\\evil.dll", "..\\..\\evil", "a\0b", "")
    letter = Raw("a.txt", b"a")
    many = [Raw("kernel", b"0" * 10_000)] + [Raw(f"f{n}", at=0) for n in range(5000)]
    rtl, bad = "\u202etxt.exe", b"\xff\xfe\x80.txt"
    nested = raw_zip([Raw("bomb", packed=bomb(b"0" * 1_000_000, 300).packed)])
    for depth in range(5):
        nested = raw_zip([Raw(f"level{depth}-{n}.zip", nested) for n in range(3)])
    huge_extra = b"\x01\x00\x20\x00" + b"\xff" * 32
    return {
        "names.zip": lambda: raw_zip([Raw(name, b"x") for name in (*names, rtl, bad)]),
        "nested.zip": lambda: nested,
        "overlapping.zip": lambda: raw_zip(many),
        "many.zip": lambda: raw_zip((Raw(f"{n}") for n in range(60_000)), count=60_000),
        "count.zip": lambda: raw_zip([letter], count=0xFFFF),
        "sizes.zip": lambda: raw_zip([replace(letter, size=0xFFFFFFFE, packed_size=0xFFFFFFF0)]),
        "zip64.zip": lambda: raw_zip(
            [replace(letter, size=0xFFFFFFFF, packed_size=0xFFFFFFFF, extra=huge_extra)]
        ),
        "outside.zip": lambda: raw_zip([replace(letter, at=0x7FFFFFFF)]),
        "comment.zip": lambda: raw_zip([letter], comment=b"PK\x05\x06" * 10_000),
        "longname.zip": lambda: raw_zip([Raw("n" * 65_000, b"x"), Raw("a|b\n| c", b"x")]),
        "hidden.zip": lambda: raw_zip([replace(letter, hidden=True), letter]),
        "method.zip": lambda: raw_zip([replace(letter, method=99, flags=0x801)]),
        "junk.zip": lambda: raw_zip([letter], end=bytes(100_000)),
        "encrypted.docx": lambda: small.package(
            {"[Content_Types].xml": Raw("", small.content_types(
                {"word/document.xml": "wordprocessingml.document.main"}).encode()),
             "word/document.xml": Raw("", b"x" * 100, flags=0x801)}
        ),
        "twice.docx": lambda: raw_zip(
            [Raw("[Content_Types].xml", b"<Types/>")] * 1000 + [Raw("word/document.xml", b"<x/>")]
        ),
    }  # fmt: skip


def _tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as target:
        for info, content in entries:
            info.size = info.size or len(content)
            target.addfile(info, io.BytesIO(content.ljust(info.size, b"\0")) if content else None)
    return made.getvalue()


def _tar_header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """A header of a tar with any text as its size."""
    header = bytearray(tarfile.TarInfo(name).tobuf())
    header[124:136] = size.ljust(12, b"\0")
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _zeros(pack: Callable[[bytes], bytes], megabytes: int, before: bytes = b"") -> bytes:
    return pack(before) + pack(bytes(1_000_000)) * megabytes


def _archives() -> Files:
    link, up = tarfile.TarInfo("link"), tarfile.TarInfo("../../../tmp/evil")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device = tarfile.TarInfo("device")
    device.type = tarfile.CHRTYPE
    old = tarfile.TarInfo("old")
    old.mtime = -(2**40)
    far = tarfile.TarInfo("far")
    far.mtime = 2**62
    many = [(tarfile.TarInfo(f"file{n}"), b"") for n in range(30_000)]
    return {
        "names.tar": lambda: _tar((link, b""), (up, b"x"), (device, b""), (old, b""), (far, b"")),
        "many.tar": lambda: _tar(*many),
        "negative.tar": lambda: _tar_header("a", b"\xff" * 12) + bytes(1024),
        "endless.tar": lambda: _tar_header("a", b"77777777777") + bytes(1024),
        "sizes.tar": lambda: _tar_header("a", b"\x80" + b"\xff" * 11) + bytes(1024),
        "letters.tar": lambda: _tar_header("a", b"abcdefghijk") + bytes(1024),
        "longname.tar": lambda: _tar_header("././@LongLink", b"7777777777", b"L") + bytes(10_000),
        "pax.tar": lambda: _tar_header("pax", b"77777777", b"x") + b"9" * 5_000_000,
        "paxloop.tar": lambda: (_tar_header("pax", b"12", b"x") + b"0 a=b\n".ljust(512, b"\0"))
        * 2000,
        "sparse.tar": lambda: _tar_header("sparse", b"1000", b"S") + b"1" * 50_000,
        "bomb.gz": lambda: _zeros(gzip.compress, 1500),
        "bomb.tar.gz": lambda: _zeros(gzip.compress, 1500, _tar_header("a", b"77777777777")),
        "bomb.tar.xz": lambda: _zeros(lzma.compress, 1500, _tar_header("a", b"77777777777")),
        "bigheader.tar.gz": lambda: _zeros(
            gzip.compress, 1500, _tar_header("././@LongLink", b"\x80" + b"\0" * 6 + b"\1" * 5, b"L")
        ),
        "gz.gz": lambda: gzip.compress(gzip.compress(gzip.compress(bytes(10_000_000)))),
        "header.7z": lambda: b"7z\xbc\xaf\x27\x1c\0\4" + b"\xff" * 56,
        "header.rar": lambda: b"Rar!\x1a\x07\x01\0" + b"\xff" * 100,
        "old.rar": lambda: b"Rar!\x1a\x07\0" + b"\xff" * 100,
    }  # fmt: skip


def _dtds(lures: Lures) -> dict[str, str]:
    """Document types that grow or refer outside, for a document that uses the entity `e`."""
    web, file = lures.addresses
    laughs = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return {
        "laughs": f'<!DOCTYPE x [<!ENTITY e0 "ha">{laughs}<!ENTITY e "&e11;">]>',
        "quadratic": f'<!DOCTYPE x [<!ENTITY e "{"a" * 1_000_000}">]>',
        "file": f'<!DOCTYPE x [<!ENTITY e SYSTEM "{file}">]>',
        "web": f'<!DOCTYPE x [<!ENTITY e SYSTEM "{web}">]>',
        "subset": f'<!DOCTYPE x SYSTEM "{web}">',
        "parameter": f'<!DOCTYPE x [<!ENTITY % p SYSTEM "{web}">%p;<!ENTITY e "e">]>',
        "loop": '<!DOCTYPE x [<!ENTITY e "&f;"><!ENTITY f "&e;">]>',
    }


def _xml(lures: Lures) -> Files:
    """The same attacks in each format that is made of XML."""
    files: Files = {}
    for name, dtd in _dtds(lures).items():
        times = 2_000 if name == "quadratic" else 1
        word = f"<w:p><w:r><w:t>{'&e;' * times}</w:t></w:r></w:p>"
        files[f"{name}.docx"] = partial(small.docx, word, dtd)
        files[f"{name}.odt"] = partial(small.odt, f"<text:p>{'&e;' * times}</text:p>", dtd)
        sheet = f'{dtd}<worksheet {small.S}><sheetData><row r="1"><c r="A1" t="str"><v>&e;</v></c></row></sheetData></worksheet>'
        files[f"{name}.xlsx"] = partial(small.xlsx, **{"xl/worksheets/sheet1.xml": sheet})
        files[f"{name}.epub"] = partial(
            small.epub, f"{dtd}<html><body><p>{'&e;' * times}</p></body></html>"
        )
    start, end = "<w:document " + small.W + "><w:body>", "</w:body></w:document>"
    paragraph = "<w:p><w:r><w:t>boom</w:t></w:r></w:p>"
    files |= {
        "bomb.docx": lambda: _document_bomb(small.docx_of, start, paragraph, end),
        "spaces.docx": lambda: _document_bomb(small.docx_of, start, " ", end),
        "onetag.docx": lambda: _document_bomb(small.docx_of, "<w:document a='", "x", "'/>"),
        "deep.docx": lambda: small.docx("<w:sdt>" * 200_000 + "</w:sdt>" * 200_000),
        "unclosed.docx": lambda: small.docx_of(f"{start}{'<w:p>' * 500_000}"),
        "attributes.docx": lambda: small.docx_of(
            "<w:document " + " ".join(f'a{n}=""' for n in range(300_000)) + "/>"
        ),
        "namespaces.docx": lambda: small.docx_of(
            "<w:document " + " ".join(f'xmlns:a{n}="u{n}"' for n in range(100_000)) + "/>"
        ),
        "utf16.docx": lambda: small.docx_of(f"{start}{paragraph}{end}".encode("utf-16")),
        "utf7.docx": lambda: small.docx_of(
            b'<?xml version="1.0" encoding="utf-7"?>+ADw-w:document/+AD4-'
        ),
        "nothing.docx": lambda: small.docx_of(b""),
        "binary.docx": lambda: small.docx_of(bytes(range(256)) * 100),
        "comments.docx": lambda: small.docx_of("<!-- x -->" * 300_000 + "<a/>"),
    }
    return files


def _word(lures: Lures) -> Files:
    web, file = lures.addresses
    external = small.relationships(
        {web: "attachedTemplate", file: "image", f"{web}2": "hyperlink", f"{web}3": "subDocument",
         "../../../../../../etc/passwd": "aFChunk"}, ' TargetMode="External"')  # fmt: skip
    nested = "<w:tbl><w:tr><w:tc>" * 3000 + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * 3000
    styles = f'<w:styles {small.W}><w:style w:styleId="A"><w:basedOn w:val="A"/></w:style><w:style w:styleId="B"><w:basedOn w:val="C"/></w:style><w:style w:styleId="C"><w:basedOn w:val="B"/></w:style></w:styles>'
    styled = '<w:p><w:pPr><w:pStyle w:val="B"/><w:numPr><w:ilvl w:val="99999999"/><w:numId w:val="-5"/></w:numPr></w:pPr><w:r><w:t>styled</w:t></w:r></w:p>'
    field = f'<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>INCLUDETEXT "{file}" DDEAUTO cmd</w:instrText></w:r></w:p>'
    wide = '<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2147483647"/></w:tcPr><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc></w:tr></w:tbl>'
    return {
        "external.docx": lambda: small.docx(
            f'{field}<w:altChunk r:id="rId5" xmlns:r="r"/><w:p><w:r><w:t>words</w:t></w:r></w:p>',
            **{"word/_rels/document.xml.rels": external},
        ),
        "nestedtables.docx": lambda: small.docx(nested),
        "styles.docx": lambda: small.docx(
            styled,
            **{"word/styles.xml": styles},
            **{"word/_rels/document.xml.rels": small.relationships({"styles.xml": "styles"})},
        ),
        "gridspan.docx": lambda: small.docx(wide * 50),
        "macros.docm": lambda: small.docx(**{"word/vbaProject.bin": bytes(range(256)) * 50}),
        "self.docx": lambda: small.docx(
            **{
                "word/_rels/document.xml.rels": small.relationships(
                    {"document.xml": "footnotes", "../word/document.xml": "comments"}
                )
            }
        ),
        "manytables.docx": lambda: small.docx(
            "<w:tbl>" + "<w:tr>" + "<w:tc><w:p/></w:tc>" * 400_000 + "</w:tr></w:tbl>"
        ),
        "numbers.docx": lambda: small.docx(
            '<w:p><w:pPr><w:ind w:left="1e999"/><w:outlineLvl w:val="x"/></w:pPr></w:p>' * 100
        ),
    }


def _cell(place: str, value: str = "1", kind: str = "n") -> str:
    return f'<row r="1"><c r="{place}" t="{kind}"><v>{value}</v></c></row>'


def _sheets(lures: Lures) -> Files:
    web, file = lures.addresses
    external = small.relationships(
        {web: "externalLinkPath", file: "image"}, ' TargetMode="External"'
    )
    shared = f'<sst {small.S} count="4294967295" uniqueCount="4294967295"><si><t>a</t></si></sst>'
    far = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    corners = _cell("A1") + far
    merged = '</sheetData><mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells><sheetData>'
    odd = "".join(
        _cell(place) for place in ("A0", "ZZZZZZ99999999999", "1A", "", "A-5", "XFE1", "A16777217")
    )
    values = "".join(
        f'<row r="{n}"><c r="A{n}" t="{kind}" s="{style}"><v>{value}</v></c></row>'
        for n, (kind, value, style) in enumerate(
            (("s", "99999", 0), ("s", "-1", 0), ("n", "1e308", 14), ("n", "-1e9", 14),
             ("n", "nan", 0), ("b", "7", 0), ("e", "#REF!", 0), ("d", "0000-99-99", 0),
             ("n", "9" * 100_000, 0), ("x", "", 2147483647)), 1)
    )  # fmt: skip
    rows = "".join(f'<row r="{n}"><c r="A{n}"><v>{n}</v></c></row>' for n in range(1, 1_000_000, 9))
    formats = f'<styleSheet {small.S}><numFmts><numFmt numFmtId="200" formatCode="{"[" * 50_000}yyyy{"#," * 50_000}"/></numFmts><cellXfs><xf numFmtId="200"/></cellXfs></styleSheet>'
    return {
        "corner.xlsx": lambda: small.xlsx(corners),
        "merged.xlsx": lambda: small.xlsx(corners + merged),
        "odd.xlsx": lambda: small.xlsx(odd),
        "values.xlsx": lambda: small.xlsx(values),
        "rows.xlsx": lambda: small.xlsx(rows),
        "wide.xlsx": lambda: small.xlsx("".join(f'<row r="{n}"><c r="XFD{n}"><v>1</v></c></row>' for n in range(1, 20_000))),
        "dimension.xlsx": lambda: small.xlsx("</sheetData><dimension ref='A1:XFD1048576'/><sheetData>"),
        "sheets.xlsx": lambda: small.xlsx(sheets=3_000),
        "shared.xlsx": lambda: small.xlsx(
            _cell("A1", "5", "s"),
            **{"xl/sharedStrings.xml": shared},
            **{"xl/_rels/workbook.xml.rels": small.relationships(
                {"worksheets/sheet1.xml": "worksheet", "sharedStrings.xml": "sharedStrings"}
            )},
        ),
        "sharedbomb.xlsx": lambda: small.xlsx(
            _cell("A1", "5", "s"),
            **{"xl/sharedStrings.xml": bomb(
                b"<si><t>a</t></si>" * 50_000, 1000, f"<sst {small.S}>".encode(), b"</sst>"
            )},
            **{"xl/_rels/workbook.xml.rels": small.relationships(
                {"worksheets/sheet1.xml": "worksheet", "sharedStrings.xml": "sharedStrings"}
            )},
        ),
        "formats.xlsx": lambda: small.xlsx(
            _cell("A1"),
            **{"xl/styles.xml": formats},
            **{"xl/_rels/workbook.xml.rels": small.relationships(
                {"worksheets/sheet1.xml": "worksheet", "styles.xml": "styles"}
            )},
        ),
        "external.xlsx": lambda: small.xlsx(
            '<row r="1"><c r="A1"><f>WEBSERVICE("' + web + '")</f><v>1</v></c></row>',
            **{"xl/externalLinks/_rels/externalLink1.xml.rels": external},
        ),
        "outside.xlsx": lambda: small.xlsx(
            **{"xl/_rels/workbook.xml.rels": small.relationships(
                {"../../../../../../etc/passwd": "worksheet"}
            )}),
    }  # fmt: skip


def _slides(lures: Lures) -> Files:
    web, file = lures.addresses
    deep = "<p:grpSp>" * 20_000 + "</p:grpSp>" * 20_000
    external = small.relationships({web: "image", file: "video"}, ' TargetMode="External"')
    table = '<a:tbl><a:tr><a:tc gridSpan="2147483647" rowSpan="2147483647"><a:txBody><a:p><a:r><a:t>x</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl>'
    frame = f'<p:graphicFrame><a:graphic><a:graphicData>{table}</a:graphicData></a:graphic></p:graphicFrame>'  # fmt: skip
    placed = '<p:sp><p:spPr><a:xfrm><a:off x="9e99" y="nan"/><a:ext cx="-1" cy="x"/></a:xfrm></p:spPr><p:txBody><a:p><a:r><a:t>x</a:t></a:r></a:p></p:txBody></p:sp>'
    return {
        "deep.pptx": lambda: small.pptx(deep),
        "slides.pptx": lambda: small.pptx(slides=3_000),
        "table.pptx": lambda: small.pptx(frame * 20),
        "places.pptx": lambda: small.pptx(placed * 2_000),
        "self.pptx": lambda: small.pptx(
            **{
                "ppt/_rels/presentation.xml.rels": small.relationships(
                    {"presentation.xml": "slide"}
                )
            }
        ),
        "external.pptx": lambda: small.pptx(**{"ppt/slides/_rels/slide1.xml.rels": external}),
    }


def _open_documents(lures: Lures) -> Files:
    web, file = lures.addresses
    repeated = (
        '<table:table-row table:number-rows-repeated="1048576"><table:table-cell '
        'table:number-columns-repeated="16384"><text:p>x</text:p></table:table-cell>'
        "</table:table-row>"
    )
    enormous = repeated.replace("1048576", "9" * 25).replace("16384", "9" * 25)
    odd = repeated.replace("1048576", "-5").replace("16384", "many")
    return {
        "repeated.ods": lambda: small.ods(repeated),
        "enormous.ods": lambda: small.ods(enormous),
        "odd.ods": lambda: small.ods(odd),
        "manyrepeats.ods": lambda: small.ods(repeated.replace("1048576", "50") * 1000),
        "emptyrepeats.ods": lambda: small.ods(
            (repeated.replace("<text:p>x</text:p>", "") * 50) + repeated.replace("1048576", "1")
        ),
        "spaces.odt": lambda: small.odt('<text:p>a<text:s text:c="2147483647"/>b</text:p>' * 10),
        "manyspaces.odt": lambda: small.odt('<text:p><text:s text:c="99999"/>b</text:p>' * 20_000),
        "deep.odt": lambda: small.odt("<text:section>" * 100_000 + "</text:section>" * 100_000),
        "spans.odt": lambda: small.odt(
            "<text:p>" + "<text:span>" * 900 + "x" + "</text:span>" * 900 + "</text:p>"
        ),
        "lists.odt": lambda: small.odt(
            "<text:list><text:list-item>" * 450 + "<text:p>x</text:p>"
            + "</text:list-item></text:list>" * 450
        ),
        "external.odt": lambda: small.odt(
            f'<text:p xmlns:xlink="http://www.w3.org/1999/xlink"><text:a xlink:href="{web}">link</text:a>'
            f'<draw:frame><draw:image xlink:href="{file}"/></draw:frame>'
            f'<text:section><text:section-source xlink:href="{web}"/></text:section></text:p>'
        ),
        "tables.odp": lambda: small.odp(
            '<draw:frame><table:table><table:table-row><table:table-cell '
            'table:number-columns-spanned="999999999"><text:p>x</text:p></table:table-cell>'
            "</table:table-row></table:table></draw:frame>"
        ),
        "deep.odp": lambda: small.odp("<draw:g>" * 50_000 + "</draw:g>" * 50_000),
        "encrypted.odt": lambda: small.package(
            {
                "mimetype": "application/vnd.oasis.opendocument.text",
                "content.xml": bytes(range(256)) * 10,
                "META-INF/manifest.xml": (
                    '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:'
                    'manifest:1.0"><manifest:file-entry manifest:full-path="content.xml">'
                    "<manifest:encryption-data/></manifest:file-entry></manifest:manifest>"
                ),
            }
        ),
    }  # fmt: skip


def _books(lures: Lures) -> Files:
    web, file = lures.addresses
    pictures = f'<img src="{web}"/><link href="{file}" rel="stylesheet"/><iframe src="{web}"/>'
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="{}"/></rootfiles></container>'
    )
    return {
        "external.epub": lambda: small.epub(f"<html><body>{pictures}<p>x</p></body></html>"),
        "spine.epub": lambda: small.epub(spine='<itemref idref="one"/>' * 20_000),
        "missing.epub": lambda: small.epub(spine='<itemref idref="none"/>' * 100),
        "outside.epub": lambda: small.epub(
            **{"META-INF/container.xml": container.format("../../../etc/passwd")}
        ),
        "loop.epub": lambda: small.epub(
            **{"META-INF/container.xml": container.format("META-INF/container.xml")}
        ),
        "deep.epub": lambda: small.epub(
            "<html><body>" + "<div>" * 100_000 + "x" + "</div>" * 100_000 + "</body></html>"
        ),
        "bomb.epub": lambda: small.epub(bomb(b"<p>boom</p>" * 90_000, 1000, b"<html><body>")),
        "protected.epub": lambda: small.epub(
            **{
                "META-INF/encryption.xml": (
                    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
                    '<EncryptedData xmlns="http://www.w3.org/2001/04/xmlenc#"><CipherData>'
                    '<CipherReference URI="one.xhtml"/></CipherData></EncryptedData></encryption>'
                )
            }
        ),
    }
