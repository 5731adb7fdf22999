"""Writers of documents for tests: PDF from operators, and what office libraries do not write."""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from collections.abc import Mapping, Sequence

from reportlab.lib.utils import simpleSplit

WIDTH, HEIGHT = 612, 792  # points of a PDF's page
_WORDS = """the river carries small boats past quiet towns where people mend nets and trade salt
for cloth while children count gulls above warm stones and old men argue about weather prices roads
bridges winter harvest lamps letters maps and distant mountains"""


def prose(seed: int, words: int) -> str:
    """Sentences of so many words, always the same for a seed."""
    chosen = random.Random(seed)
    made: list[str] = []
    while words > 0:
        count = min(words, chosen.randint(6, 14))
        sentence = " ".join(chosen.choice(_WORDS.split()) for _ in range(count))
        made.append(sentence[0].upper() + sentence[1:] + ".")
        words -= count
    return " ".join(made)


def wrapped(text: str, width: float, size: float = 10) -> list[str]:
    """The lines of a text in Helvetica, each at most so wide in points."""
    return simpleSplit(text, "Helvetica", size, width)


class PdfPage:
    """The operators of a page; places are points from its upper left corner."""

    def __init__(self, width: int = WIDTH, height: int = HEIGHT, rotate: int = 0) -> None:
        self.size, self.rotate = (width, height), rotate
        self.operators: list[bytes] = []
        self.fields: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str | bytes,
        size: float = 10,
        *,
        font: str = "F1",
        turn: int = 0,
    ) -> PdfPage:
        """A line of text, turned to the left by so many quarters."""
        a, b = ((1, 0), (0, 1), (-1, 0), (0, -1))[turn]
        code = text if isinstance(text, bytes) else text.encode("cp1252")
        for mark in (b"\\", b"(", b")"):
            code = code.replace(mark, b"\\" + mark)
        place = f"{a} {b} {-b} {a} {x:.2f} {self.size[1] - y:.2f} Tm"
        self.operators.append(
            b"BT /%s %g Tf %s (%s) Tj ET" % (font.encode(), size, place.encode(), code)
        )
        return self

    def lines(
        self, x: float, y: float, lines: Sequence[str], size: float = 10, leading: float = 12
    ) -> PdfPage:
        for i, line in enumerate(lines):
            self.text(x, y + i * leading, line, size)
        return self

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> PdfPage:
        high = self.size[1]
        self.operators.append(f"{x0} {high - y0} m {x1} {high - y1} l S".encode())
        return self

    def box(self, x0: float, y0: float, x1: float, y1: float) -> PdfPage:
        self.operators.append(f"{x0} {self.size[1] - y1} {x1 - x0} {y1 - y0} re S".encode())
        return self

    def grid(self, xs: Sequence[float], ys: Sequence[float]) -> PdfPage:
        for y in ys:
            self.rule(xs[0], y, xs[-1], y)
        for x in xs:
            self.rule(x, ys[0], x, ys[-1])
        return self

    def cells(
        self, xs: Sequence[float], ys: Sequence[float], rows: Sequence[Sequence[str]]
    ) -> PdfPage:
        """Texts at these places, row by row; an empty one is left out."""
        for y, row in zip(ys, rows, strict=False):
            for x, cell in zip(xs, row, strict=False):
                if cell:
                    self.text(x, y, cell)
        return self

    def picture(self, x: float, y: float, width: float, height: float) -> PdfPage:
        self.operators.append(
            f"q {width} 0 0 {height} {x} {self.size[1] - y - height} cm /Im1 Do Q".encode()
        )
        return self

    def field(self, x0: float, y0: float, x1: float, y1: float, name: str, entries: str) -> PdfPage:
        """A field of a form; `entries` are those of its dictionary, such as `/FT /Tx /V (x)`; EMPTY is a form."""
        high = self.size[1]
        self.fields.append(
            f"<< /Type /Annot /Subtype /Widget /T ({name}) {entries} /F 4 "
            f"/Rect [{x0} {high - y1} {x1} {high - y0}] >>"
        )
        return self


def pdf(
    pages: Sequence[PdfPage],
    *,
    catalog: str = "",
    info: str = "",
    outline: Sequence[tuple[str, int, int]] = (),
    letters: Mapping[int, str] | None = None,
    trailer: str = "",
) -> bytes:
    """A PDF file.

    `catalog` are entries of its catalog, `outline` titles with level and page, `letters` what the
    characters of the font F2 mean.
    """
    objects: list[bytes] = []

    def add(content: str | bytes) -> int:
        objects.append(content.encode("latin-1") if isinstance(content, str) else content)
        return len(objects)

    def stream(entries: str, data: bytes) -> int:
        packed = zlib.compress(data)
        head = f"<< {entries} /Filter /FlateDecode /Length {len(packed)} >>\nstream\n"
        return add(head.encode() + packed + b"\nendstream")

    root, tree = add(""), add("")
    font = add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    code = add("<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>")
    codes = "\n".join(
        f"<{code:02x}> <{text.encode('utf-16-be').hex()}>" for code, text in (letters or {}).items()
    )
    mapping = stream(
        "",
        (
            "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def\n"
            "1 begincodespacerange <00> <ff> endcodespacerange\n"
            f"{len(letters or {})} beginbfchar\n{codes}\nendbfchar endcmap end end"
        ).encode(),
    )
    mapped = add(f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode {mapping} 0 R >>")
    image = stream(
        "/Type /XObject /Subtype /Image /Width 8 /Height 8 /ColorSpace /DeviceGray /BitsPerComponent 8",
        bytes(range(64)),
    )
    empty = stream("/Type /XObject /Subtype /Form /BBox [0 0 9 9]", b"")
    kids: list[int] = []
    fields: list[int] = []
    for page in pages:
        content = stream("", b"\n".join(page.operators))
        notes = [add(entries.replace("EMPTY", f"{empty} 0 R")) for entries in page.fields]
        fields += notes
        kids.append(
            add(
                f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 {page.size[0]} {page.size[1]}] "
                f"/Rotate {page.rotate} /Contents {content} 0 R /Resources << /Font << /F1 {font} 0 R "
                f"/F2 {mapped} 0 R /F3 {code} 0 R >> /XObject << /Im1 {image} 0 R >> >> "
                f"/Annots [{' '.join(f'{note} 0 R' for note in notes)}] >>"
            )
        )
    objects[tree - 1] = (
        f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>"
    ).encode()
    if fields:
        references = " ".join(f"{each} 0 R" for each in fields)
        catalog += f" /AcroForm << /Fields [{references}] /DA (/Helv 10 Tf) >>"
    if outline:
        catalog += f" /Outlines {_outline(add, objects, outline, kids)} 0 R"
    objects[root - 1] = f"<< /Type /Catalog /Pages {tree} 0 R {catalog} >>".encode("latin-1")
    details = add(f"<< {info} >>")
    return _file(objects, f"/Root {root} 0 R /Info {details} 0 R {trailer}")


def _outline(
    add, objects: list[bytes], entries: Sequence[tuple[str, int, int]], kids: list[int]
) -> int:
    top = add("")
    numbers = [add("") for _ in entries]
    levels = [level for _, level, _ in entries]

    def sisters(level: int, start: int, parent: int) -> tuple[int, int]:
        found = []
        for i in range(start, len(entries)):
            if levels[i] < level:
                break
            if levels[i] == level:
                found.append(i)
        for k, i in enumerate(found):
            title, _, page = entries[i]
            entry = f"/Title <feff{title.encode('utf-16-be').hex()}> /Parent {parent} 0 R "
            entry += f"/Dest [{kids[page]} 0 R /Fit] "
            if k:
                entry += f"/Prev {numbers[found[k - 1]]} 0 R "
            if k + 1 < len(found):
                entry += f"/Next {numbers[found[k + 1]]} 0 R "
            if i + 1 < len(entries) and levels[i + 1] > level:
                first, last = sisters(level + 1, i + 1, numbers[i])
                entry += f"/First {first} 0 R /Last {last} 0 R /Count 1 "
            objects[numbers[i] - 1] = f"<< {entry} >>".encode("latin-1")
        return numbers[found[0]], numbers[found[-1]]

    first, last = sisters(1, 0, top)
    objects[top - 1] = (
        f"<< /Type /Outlines /First {first} 0 R /Last {last} 0 R /Count 1 >>".encode()
    )
    return top


def _file(objects: Sequence[bytes], trailer: str) -> bytes:
    out = io.BytesIO(b"")
    out.write(b"%PDF-1.7\n")
    places: list[int] = []
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for place in places:
        out.write(b"%010d 00000 n \n" % place)
    out.write(
        f"trailer << /Size {len(objects) + 1} {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()
    )
    return out.getvalue()


def package(entries: Mapping[str, str | bytes]) -> bytes:
    """A zip package with these entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return out.getvalue()


W_MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R_TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD_SPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "w": W_MAIN,
        "r": R_TYPE,
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "v": "urn:schemas-microsoft-com:vml",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    }.items()
)
WORD_STYLES = "".join(
    f'<w:style w:type="paragraph" w:styleId="{identity}"><w:name w:val="{name}"/>{rest}</w:style>'
    for identity, name, rest in (
        ("Title", "Title", ""),
        *((f"H{i}", f"heading {i}", "") for i in range(1, 10)),
        ("Sub", "My heading", '<w:basedOn w:val="H2"/>'),
        ("Out", "Outlined", '<w:pPr><w:outlineLvl w:val="2"/></w:pPr>'),
        ("Listed", "Listed", '<w:pPr><w:numPr><w:numId w:val="2"/></w:numPr></w:pPr>'),
        ("Secret", "Secret", "<w:rPr><w:vanish/></w:rPr>"),
    )
)


def relations(entries: Mapping[str, tuple[str, str]]) -> str:
    """The relations of a part: kind and target by id; a target with `:` is external."""
    rows = "".join(
        f'<Relationship Id="{identity}" Type="{R_TYPE}/{kind}" Target="{target}"'
        f"{' TargetMode=' + chr(34) + 'External' + chr(34) if ':' in target else ''}/>"
        for identity, (kind, target) in entries.items()
    )
    uri = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{uri}">{rows}</Relationships>'


def strict(text: str) -> str:
    """A part of the transitional format with the namespaces of the strict one."""
    return (
        text.replace(W_MAIN, "http://purl.oclc.org/ooxml/wordprocessingml/main")
        .replace(
            "schemas.openxmlformats.org/spreadsheetml/2006", "purl.oclc.org/ooxml/spreadsheetml"
        )
        .replace(
            "schemas.openxmlformats.org/presentationml/2006", "purl.oclc.org/ooxml/presentationml"
        )
        .replace("schemas.openxmlformats.org/drawingml/2006", "purl.oclc.org/ooxml/drawingml")
        .replace(R_TYPE, "http://purl.oclc.org/ooxml/officeDocument/relationships")
    )


def word_file(
    body: str,
    *,
    styles: str = WORD_STYLES,
    numbering: str = "",
    footnotes: str = "",
    endnotes: str = "",
    links: Mapping[str, str] | None = None,
    title: str = "",
    is_strict: bool = False,
) -> bytes:
    """A docx file with this content of its body, and of its other parts."""
    parts = {"styles": styles, "numbering": numbering, "footnotes": footnotes, "endnotes": endnotes}
    related = {
        **{name: (name, f"{name}.xml") for name, text in parts.items() if text},
        **{name: ("hyperlink", target) for name, target in (links or {}).items()},
    }
    header = f"<w:hdr {_WORD_SPACES}><w:p><w:r><w:t>The header</w:t></w:r></w:p></w:hdr>"
    entries = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": relations({"rId1": ("officeDocument", "word/document.xml")}),
        "word/document.xml": f"<w:document {_WORD_SPACES}><w:body>{body}</w:body></w:document>",
        "word/_rels/document.xml.rels": relations(related),
        "word/header1.xml": header,
        **{
            f"word/{name}.xml": f"<w:{name} {_WORD_SPACES}>{text}</w:{name}>"
            for name, text in parts.items()
            if text
        },
    }
    if title:
        entries["docProps/core.xml"] = (
            '<p:coreProperties xmlns:p="x" xmlns:dc="http://purl.org/dc/elements/1.1/">'
            f"<dc:title>{title}</dc:title></p:coreProperties>"
        )
    return package({name: strict(text) if is_strict else text for name, text in entries.items()})


def p(text: str, properties: str = "") -> str:
    """A paragraph of WordprocessingML; `text` may contain runs."""
    inner = text if text.startswith("<") else r(text)
    return f"<w:p>{f'<w:pPr>{properties}</w:pPr>' if properties else ''}{inner}</w:p>"


def r(text: str, properties: str = "") -> str:
    """A run of WordprocessingML."""
    inner = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{inner}<w:t xml:space="preserve">{text}</w:t></w:r>'


def sheet_file(
    sheets: Mapping[str, str],
    *,
    formats: Sequence[str] = (),
    strings: Sequence[str] = (),
    hidden: Sequence[str] = (),
    about: str = "",
    is_strict: bool = False,
) -> bytes:
    """An xlsx file: the rows of each sheet as XML; style i + 1 has the format i."""
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    named = "".join(
        f'<sheet name="{name}" sheetId="{i}" r:id="s{i}"'
        f"{' state=' + chr(34) + 'hidden' + chr(34) if name in hidden else ''}/>"
        for i, name in enumerate(sheets)
    )
    codes = "".join(
        f'<numFmt numFmtId="{200 + i}" formatCode="{code.replace("&", "&amp;").replace(chr(34), "&quot;")}"/>'
        for i, code in enumerate(formats)
    )
    styles = "".join(f'<xf numFmtId="{200 + i}"/>' for i in range(len(formats)))
    entries = {
        "_rels/.rels": relations({"rId1": ("officeDocument", "xl/workbook.xml")}),
        "xl/workbook.xml": (
            f'<workbook {space} xmlns:r="{R_TYPE}"><workbookPr {about}/><sheets>{named}</sheets></workbook>'
        ),
        "xl/_rels/workbook.xml.rels": relations(
            {
                **{f"s{i}": ("worksheet", f"worksheets/sheet{i}.xml") for i in range(len(sheets))},
                "styles": ("styles", "styles.xml"),
                "strings": ("sharedStrings", "sharedStrings.xml"),
            }
        ),
        "xl/styles.xml": (
            f"<styleSheet {space}><numFmts>{codes}</numFmts><cellStyleXfs><xf numFmtId='9'/></cellStyleXfs>"
            f"<cellXfs><xf numFmtId='0'/>{styles}</cellXfs></styleSheet>"
        ),
        "xl/sharedStrings.xml": f"<sst {space}>{''.join(f'<si>{each}</si>' for each in strings)}</sst>",
        **{
            f"xl/worksheets/sheet{i}.xml": f"<worksheet {space}><sheetData>{rows}</sheetData></worksheet>"
            for i, rows in enumerate(sheets.values())
        },
    }
    return package({name: strict(text) if is_strict else text for name, text in entries.items()})


CHART = (
    '<c:chartSpace xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><c:chart><c:title><c:tx><c:rich>'
    "<a:p><a:r><a:t>Sales</a:t></a:r></a:p></c:rich></c:tx></c:title><c:plotArea><c:barChart><c:ser>"
    "<c:tx><c:strRef><c:strCache><c:pt idx='0'><c:v>2024</c:v></c:pt></c:strCache></c:strRef></c:tx>"
    "<c:cat><c:strRef><c:strCache><c:pt idx='0'><c:v>Tea</c:v></c:pt><c:pt idx='1'><c:v>Salt</c:v></c:pt>"
    "</c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache><c:formatCode>0.0</c:formatCode>"
    "<c:pt idx='0'><c:v>3.25</c:v></c:pt><c:pt idx='1'><c:v>7</c:v></c:pt></c:numCache></c:numRef></c:val>"
    "</c:ser></c:barChart></c:plotArea></c:chart></c:chartSpace>"
)
DIAGRAM = (
    '<dgm:dataModel xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><dgm:ptLst>'
    "<dgm:pt><dgm:t><a:p><a:r><a:t>One step</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "<dgm:pt><dgm:t><a:p><a:r><a:t>Two steps</a:t></a:r></a:p></dgm:t></dgm:pt>"
    "</dgm:ptLst></dgm:dataModel>"
)
CHART_TEXT = "Sales\n\n|  | 2024 |\n| --- | --- |\n| Tea | 3.3 |\n| Salt | 7.0 |"


def slide_file(
    slides: Sequence[str],
    *,
    notes: Mapping[int, str] | None = None,
    hidden: Sequence[int] = (),
    layout: str = "",
    is_strict: bool = False,
) -> bytes:
    """A pptx file: the shapes of each slide as XML, and of their layout."""
    spaces = (
        'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
        'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram" '
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
        'xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main" '
        'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
        f'xmlns:r="{R_TYPE}"'
    )
    # The names of the parts are not in the order of the slides.
    names = {i: f"slides/slide{len(slides) - i}.xml" for i in range(len(slides))}
    listed = "".join(f'<p:sldId id="{256 + i}" r:id="s{i}"/>' for i in names)
    entries = {
        "_rels/.rels": relations({"rId1": ("officeDocument", "ppt/presentation.xml")}),
        "ppt/presentation.xml": f"<p:presentation {spaces}><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations({f"s{i}": ("slide", names[i]) for i in names}),
        "ppt/slideLayouts/layout1.xml": (
            f"<p:sldLayout {spaces}><p:cSld><p:spTree>{layout}</p:spTree></p:cSld></p:sldLayout>"
        ),
        "ppt/charts/chart1.xml": CHART,
        "ppt/diagrams/data1.xml": DIAGRAM,
    }
    for i, shapes in enumerate(slides):
        show = ' show="0"' if i in hidden else ""
        entries[f"ppt/{names[i]}"] = (
            f"<p:sld {spaces}{show}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        )
        related = {
            "l": ("slideLayout", "../slideLayouts/layout1.xml"),
            "web": ("hyperlink", "https://example.org/"),
            "chart": ("chart", "../charts/chart1.xml"),
            "data": ("diagramData", "../diagrams/data1.xml"),
        }
        if notes and i in notes:
            related["n"] = ("notesSlide", f"../notesSlides/notes{i}.xml")
            entries[f"ppt/notesSlides/notes{i}.xml"] = (
                f"<p:notes {spaces}><p:cSld><p:spTree>{notes[i]}</p:spTree></p:cSld></p:notes>"
            )
        folder, _, name = names[i].partition("/")
        entries[f"ppt/{folder}/_rels/{name}.rels"] = relations(related)
    return package({name: strict(text) if is_strict else text for name, text in entries.items()})


_OPEN_SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{rest}:1.0"'
    for name, rest in {
        **{name: name for name in ("office", "text", "table", "style", "meta", "presentation")},
        "draw": "drawing",
        "svg": "svg-compatible",
    }.items()
)
_OPEN_SPACES += (
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="http://www.w3.org/1999/xlink"'
)
_OPEN_SPACES += ' xmlns:math="http://www.w3.org/1998/Math/MathML"'


def open_file(
    kind: str,
    body: str,
    *,
    styles: str = "",
    automatic: str = "",
    title: str = "",
    objects: Mapping[str, str] | None = None,
    is_flat: bool = False,
) -> bytes:
    """An OpenDocument file of a kind, such as `text`, zipped or as one XML file."""
    content = (
        f"<office:automatic-styles>{automatic}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    )
    meta = f"<office:meta><dc:title>{title}</dc:title></office:meta>"
    common = (
        f"<office:styles>{styles}</office:styles><office:master-styles><style:master-page>"
        "<style:header><text:p>The header</text:p></style:header></style:master-page></office:master-styles>"
    )
    if is_flat:
        return (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document {_OPEN_SPACES} '
            f'office:mimetype="application/vnd.oasis.opendocument.{kind}">{meta}{common}{content}'
            "</office:document>"
        ).encode()
    return package(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {_OPEN_SPACES}>{content}</office:document-content>",
            "styles.xml": f"<office:document-styles {_OPEN_SPACES}>{common}</office:document-styles>",
            "meta.xml": f"<office:document-meta {_OPEN_SPACES}>{meta}</office:document-meta>",
            **{f"{name}/content.xml": text for name, text in (objects or {}).items()},
        }
    )
