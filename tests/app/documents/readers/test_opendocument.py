"""OpenDocument texts, presentations and spreadsheets, zipped and flat."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from app.documents.readers import odp, ods, odt
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, PageUnit, Warned
from document_writers import open_file, package

READERS = {"text": odt.read, "presentation": odp.read, "spreadsheet": ods.read}


def document(tmp_path: Path, kind: str, data: bytes) -> Document:
    (tmp_path / "a").write_bytes(data)
    return READERS[kind](Source(tmp_path / "a"))


def p(text: str) -> str:
    return f"<text:p>{text}</text:p>"


def h(level: int, text: str) -> str:
    return f'<text:h text:outline-level="{level}">{text}</text:h>'


def listed(*items: str, style: str = "", about: str = "") -> str:
    name = f' text:style-name="{style}"' if style else ""
    inner = "".join(f"<text:list-item>{item}</text:list-item>" for item in items)
    return f"<text:list{name} {about}>{inner}</text:list>"


def cell(text: str = "", about: str = "") -> str:
    inner = text if text.startswith("<") or not text else p(text)
    return f"<table:table-cell {about}>{inner}</table:table-cell>"


def row(*cells: str, about: str = "") -> str:
    made = "".join(each if each.startswith("<table:") else cell(each) for each in cells)
    return f"<table:table-row {about}>{made}</table:table-row>"


def table(*rows: str, name: str = "T", style: str = "") -> str:
    return (
        f'<table:table table:name="{name}" table:style-name="{style}"><table:table-column/>'
        f"{''.join(rows)}</table:table>"
    )


NUMBERS = (
    '<text:list-style style:name="N">'
    '<text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>'
    '<text:list-level-style-number text:level="2" style:num-format="a" style:num-suffix=")"/>'
    '<text:list-level-style-number text:level="3" style:num-format="i" style:num-suffix="." text:display-levels="3"/>'
    "</text:list-style>"
    '<text:list-style style:name="B"><text:list-level-style-bullet text:level="1"/></text:list-style>'
)
OUTLINE = (
    '<text:outline-style><text:outline-level-style text:level="1" style:num-format="1"/>'
    '<text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/>'
    '<text:outline-level-style text:level="3" style:num-format=""/></text:outline-style>'
)
MATH = (
    '<math:math xmlns:math="http://www.w3.org/1998/Math/MathML"><math:semantics><math:mrow>'
    "<math:mi>x</math:mi><math:mo>=</math:mo><math:mfrac><math:mrow><math:mi>a</math:mi><math:mo>+</math:mo>"
    "<math:mn>1</math:mn></math:mrow><math:mn>2</math:mn></math:mfrac><math:msup><math:mi>y</math:mi>"
    "<math:mn>2</math:mn></math:msup></math:mrow><math:annotation>x = ..</math:annotation></math:semantics></math:math>"
)
TEXTS: dict[str, tuple[str, str]] = {
    "paragraphs and headings": (
        h(1, "One") + p("Text") + h(3, "Deep"),
        "# One\n\nText\n\n### Deep",
    ),
    "spaces, tabs and breaks": (
        p("a  \n b<text:s text:c='2'/>c<text:tab/>d<text:line-break/>e"),
        "a b  c d\ne",
    ),
    "spans and links": (
        p(
            'See <text:span>the <text:a xlink:href="https://example.org/">page</text:a></text:span>, <text:a xlink:href="#x">above</text:a>'
        ),
        "See the [page](https://example.org/), above",
    ),
    "a bulleted list": (listed(p("a"), p("b") + listed(p("c")), style="B"), "- a\n- b\n  - c"),
    "a numbered list of three levels": (
        listed(p("a"), p("b") + listed(p("c"), p("d") + listed(p("e"))), p("f"), style="N"),
        "1. a\n2. b\n  a) c\n  b) d\n    2.b.i. e\n3. f",
    ),
    "a list that begins anew, and one that goes on": (
        listed(p("a"), p("b"), style="N")
        + p("x")
        + listed(p("c"), style="N")
        + p("y")
        + listed(p("d"), style="N", about='text:continue-numbering="true"'),
        "1. a\n2. b\n\nx\n\n1. c\n\ny\n\n2. d",
    ),
    "two paragraphs in an item": (
        listed(p("a") + p("more"), p("b"), style="N"),
        "1. a\n\nmore\n\n2. b",
    ),
    "a table": (
        table(
            "<table:table-header-rows>" + row("Item", "Price") + "</table:table-header-rows>",
            row("Tea|x", cell(p("4.50") + p("EUR"))),
        ),
        "| Item | Price |\n| --- | --- |\n| Tea\\|x | 4.50<br>EUR |",
    ),
    "merged cells": (
        table(
            row(
                cell("Both", 'table:number-columns-spanned="2"'), "<table:covered-table-cell/>", "c"
            ),
            row(cell("x", 'table:number-columns-repeated="2"'), "d"),
        ),
        "| Both |  | c |\n| --- | --- | --- |\n| x | x | d |",
    ),
    "a table of one cell": (table(row(cell(p("In") + p("a frame")))), "In\n\na frame"),
    "notes": (
        p(
            "One<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>The note.</text:p></text:note-body></text:note> more"
        )
        + p("Two"),
        "One[^1] more\n\n[^1]: The note.\n\nTwo",
    ),
    "tracked changes": (
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>gone</text:p></text:deletion>"
        "</text:changed-region></text:tracked-changes>"
        + p(
            'The <text:change-start text:change-id="1"/>new<text:change-end text:change-id="1"/> text<text:change text:change-id="2"/>'
        ),
        "The new text",
    ),
    "comments are left out": (
        p("Text<office:annotation><text:p>a comment</text:p></office:annotation> more"),
        "Text more",
    ),
    "sections and a table of contents": (
        "<text:section>" + p("In a section") + "</text:section><text:table-of-content>"
        "<text:table-of-content-source><text:index-title-template>Never</text:index-title-template>"
        "</text:table-of-content-source><text:index-body>"
        + p("One<text:tab/>3")
        + "</text:index-body></text:table-of-content>",
        "In a section\n\nOne 3",
    ),
    "a text box": (
        p(
            "Before<draw:frame><draw:text-box>"
            + p("In the box")
            + "</draw:text-box></draw:frame> after"
        ),
        "Before after\n\nIn the box",
    ),
    "a picture has no text": (
        p(
            "A<draw:frame><draw:image><text:p>x</text:p></draw:image><svg:title>T</svg:title></draw:frame>"
        ),
        "A",
    ),
    "ruby": (
        p(
            "<text:ruby><text:ruby-base>漢</text:ruby-base><text:ruby-text>kan</text:ruby-text></text:ruby>"
        ),
        "漢",
    ),
    "a formula": (
        p(f"So <draw:frame><draw:object>{MATH}</draw:object></draw:frame>."),
        "So x=(a+1)/2y^2.",
    ),
    "fields": (
        p("Page <text:page-number>7</text:page-number> of <text:page-count>9</text:page-count>"),
        "Page 7 of 9",
    ),
}


@pytest.mark.parametrize("is_flat", [False, True], ids=["zipped", "flat"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_read(name: str, is_flat: bool, tmp_path: Path) -> None:
    body, expected = TEXTS[name]
    data = open_file("text", body, styles=NUMBERS, title="T", is_flat=is_flat)
    found = document(tmp_path, "text", data)
    assert found.text == expected
    assert (found.kind, found.unit, found.title) == (DocumentKind.WORD, PageUnit.NONE, "T")


def test_headings_have_the_numbers_of_the_outline(tmp_path: Path) -> None:
    body = h(1, "A") + h(2, "B") + h(2, "C") + h(3, "D") + h(1, "E") + h(2, "F")
    assert document(tmp_path, "text", open_file("text", body, styles=OUTLINE)).text == (
        "# 1 A\n\n## 1.1 B\n\n## 1.2 C\n\n### D\n\n# 2 E\n\n## 2.1 F"
    )


def test_repeated_cells_of_tables_within_tables_do_not_multiply(tmp_path: Path) -> None:
    around = (
        '<table:table><table:table-row table:number-rows-repeated="1000">'
        '<table:table-cell table:number-columns-repeated="1000">'
    )
    ends = "</table:table-cell></table:table-row></table:table>"
    body = around * 8 + p("word") + ends * 8
    text = document(tmp_path, "text", open_file("text", body)).text
    assert "word" in text
    assert len(text) < 1_000_000


def test_a_formula_in_a_part_of_its_own(tmp_path: Path) -> None:
    body = p('<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>')
    assert document(tmp_path, "text", open_file("text", body, objects={"Object 1": MATH})).text == (
        "x=(a+1)/2y^2"
    )


def frame(text: str, x: str, y: str, kind: str = "", about: str = "") -> str:
    return (
        f'<draw:frame presentation:class="{kind}" svg:x="{x}" svg:y="{y}" svg:width="4cm" svg:height="2cm" '
        f"{about}><draw:text-box>{text}</draw:text-box></draw:frame>"
    )


def slide(*frames: str, style: str = "", notes: str = "") -> str:
    inner = f"<presentation:notes>{notes}</presentation:notes>" if notes else ""
    return (
        f'<draw:page draw:name="p" draw:style-name="{style}">{"".join(frames)}{inner}</draw:page>'
    )


HIDDEN = (
    '<style:style style:name="hid" style:family="drawing-page"><style:drawing-page-properties '
    'presentation:visibility="hidden"/></style:style>'
    '<style:style style:name="off" style:family="table"><style:table-properties table:display="false"/></style:style>'
)
SLIDES: dict[str, tuple[str, str]] = {
    "a title and a list": (
        frame(listed(p("a"), p("b")), "1cm", "5cm", "outline")
        + frame(p("The title"), "1cm", "1cm", "title"),
        "# The title\n\n- a\n- b",
    ),
    "reading order in any units": (
        frame(p("Low"), "10mm", "90mm")
        + frame(p("Right"), "4in", "1in")
        + frame(p("Left"), "0cm", "2.6cm"),
        "Left\n\nRight\n\nLow",
    ),
    "groups and shapes": (
        "<draw:g>"
        + frame(p("In a group"), "0cm", "9cm")
        + "</draw:g>"
        + '<draw:custom-shape svg:y="1cm">'
        + p("A shape")
        + "</draw:custom-shape>",
        "A shape\n\nIn a group",
    ),
    "a table": (
        "<draw:frame>" + table(row("a", "b"), row("c", "d")) + "</draw:frame>",
        "| a | b |\n| --- | --- |\n| c | d |",
    ),
    "footers are left out": (
        frame(p("Foot"), "0cm", "9cm", "footer")
        + frame(p("7"), "0cm", "9cm", "page-number")
        + frame(p("Text"), "0cm", "0cm"),
        "Text",
    ),
    "empty placeholders are left out": (
        frame(p("Click to add"), "0cm", "0cm", "outline", 'presentation:placeholder="true"')
        + frame(p("Text"), "0cm", "5cm"),
        "Text",
    ),
}


@pytest.mark.parametrize("is_flat", [False, True], ids=["zipped", "flat"])
@pytest.mark.parametrize("name", SLIDES)
def test_a_slide_is_read(name: str, is_flat: bool, tmp_path: Path) -> None:
    frames, expected = SLIDES[name]
    data = open_file("presentation", slide(frames), is_flat=is_flat)
    assert document(tmp_path, "presentation", data).text == expected


def test_every_slide_is_a_page(tmp_path: Path) -> None:
    notes = frame(p("Say hello."), "0cm", "0cm", "notes")
    body = slide(frame(p("One"), "0cm", "0cm"), notes=notes) + slide(
        frame(p("Two"), "0cm", "0cm"), style="hid"
    )
    found = document(tmp_path, "presentation", open_file("presentation", body, automatic=HIDDEN))
    assert found.pages == (
        Page("1", "One\n\nNotes: Say hello."),
        Page("2", "(hidden slide)\n\nTwo"),
    )
    assert (found.kind, found.unit) == (DocumentKind.SLIDES, PageUnit.SLIDE)


ROWS: dict[str, tuple[str, str]] = {
    "values as they are shown": (
        row("Day", "Share", "Sum")
        + row(
            cell("06.05.24", 'office:value-type="date" office:date-value="2024-05-06"'),
            cell("50 %", 'office:value-type="percentage" office:value="0.5"'),
            cell("1.234,50 €", 'office:value-type="currency" office:value="1234.5"'),
        ),
        "| Day | Share | Sum |\n| --- | --- | --- |\n| 06.05.24 | 50 % | 1.234,50 € |",
    ),
    "values without a text": (
        row(
            cell("", 'office:value-type="float" office:value="3.5"'),
            cell("", 'office:value-type="boolean" office:boolean-value="true"'),
            cell("", 'office:value-type="date" office:date-value="2024-05-06"'),
            cell("", 'table:formula="of:=SUM([.A1:.A2])"'),
        ),
        "3.5 | TRUE | 2024-05-06 | =SUM([.A1:.A2])",
    ),
    "repeated cells": (row(cell("x", 'table:number-columns-repeated="3"'), "y"), "x | x | x | y"),
    "repeated rows": (
        row("a", "b") + row("c", "d", about='table:number-rows-repeated="2"'),
        "| a | b |\n| --- | --- |\n| c | d |\n| c | d |",
    ),
    "huge empty ranges": (
        row(cell("a"), cell("", 'table:number-columns-repeated="16383"'))
        + row(
            cell("", 'table:number-columns-repeated="16384"'),
            about='table:number-rows-repeated="1048574"',
        )
        + row(cell("", 'table:number-columns-repeated="16383"'), "b"),
        "a\n\nb",
    ),
    "groups of rows": (
        "<table:table-row-group>" + row("a", "b") + row("c", "d") + "</table:table-row-group>",
        "| a | b |\n| --- | --- |\n| c | d |",
    ),
    "comments are left out": (
        row(cell("<office:annotation><text:p>note</text:p></office:annotation><text:p>a</text:p>")),
        "a",
    ),
    "lines in a cell": (
        row(cell(p("a") + p("b")), "c") + row("d", "e"),
        "| a<br>b | c |\n| --- | --- |\n| d | e |",
    ),
}


@pytest.mark.parametrize("is_flat", [False, True], ids=["zipped", "flat"])
@pytest.mark.parametrize("name", ROWS)
def test_a_sheet_is_read(name: str, is_flat: bool, tmp_path: Path) -> None:
    rows, expected = ROWS[name]
    data = open_file("spreadsheet", table(rows), is_flat=is_flat)
    assert document(tmp_path, "spreadsheet", data).text == expected


def test_every_sheet_is_a_page(tmp_path: Path) -> None:
    body = (
        table(row("a"), name="One") + table(name="Empty") + table(row("b"), name="Off", style="off")
    )
    found = document(tmp_path, "spreadsheet", open_file("spreadsheet", body, automatic=HIDDEN))
    assert found.pages == (Page("One", "a"), Page("Empty", ""), Page("Off", "(hidden sheet)\n\nb"))
    assert (found.kind, found.unit) == (DocumentKind.SHEETS, PageUnit.SHEET)
    assert document(tmp_path, "spreadsheet", open_file("spreadsheet", "")).text == ""


def test_a_long_sheet_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ods, "MOST_CHARACTERS", 50)
    body = table(*(row("text") for _ in range(900)))
    found = document(tmp_path, "spreadsheet", open_file("spreadsheet", body))
    assert 0 < len(found.text) < 100


def test_what_comes_before_a_damage_is_read(tmp_path: Path) -> None:
    flat = open_file("text", p("One") + p("Two"), is_flat=True)
    zipped = open_file("text", p("One") + p("Two") + "</text:p>")
    for data in (flat[: flat.index(b"Two")], zipped):
        found = document(tmp_path, "text", data)
        assert found.text.startswith("One")
        assert found.warnings == (Warned(DocumentWarning.DAMAGED),)


@pytest.mark.parametrize("kind", READERS)
def test_what_is_encrypted_or_damaged_says_so(kind: str, tmp_path: Path) -> None:
    manifest = (
        '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        '<m:file-entry m:full-path="content.xml"><m:encryption-data/></m:file-entry></m:manifest>'
    )
    encrypted = package({"META-INF/manifest.xml": manifest, "content.xml": bytes(range(99))})
    flat = open_file(kind, p("text"), is_flat=True)
    cut = flat[: flat.index(b"<office:body")]
    for data, fault in (
        (encrypted, ExtractionFault.PROTECTED),
        (package({"content.xml": "<a"}), ExtractionFault.DAMAGED),
        (package({"other.xml": "<a/>"}), ExtractionFault.DAMAGED),
        (cut, ExtractionFault.DAMAGED),
    ):
        with pytest.raises(ExtractionError) as raised:
            document(tmp_path, kind, data)
        assert raised.value.fault is fault


def test_files_of_another_library_are_read(tmp_path: Path) -> None:
    from odf.opendocument import OpenDocumentSpreadsheet, OpenDocumentText
    from odf.table import Table, TableCell, TableRow
    from odf.text import H, List, ListItem, P

    text = OpenDocumentText()
    text.text.addElement(H(outlinelevel=1, text="The river"))
    text.text.addElement(P(text="Small boats pass."))
    items = List()
    for each in ("Salt", "Cloth"):
        item = ListItem()
        item.addElement(P(text=each))
        items.addElement(item)
    text.text.addElement(items)
    book = OpenDocumentSpreadsheet()
    sheet = Table(name="Stock")
    for values in (("Item", "Pieces"), ("Tea", 3)):
        line = TableRow()
        for value in values:
            made = TableCell(valuetype="string" if isinstance(value, str) else "float", value=value)
            made.addElement(P(text=str(value)))
            line.addElement(made)
        sheet.addElement(line)
    book.spreadsheet.addElement(sheet)
    for made, kind, expected in (
        (text, "text", "# The river\n\nSmall boats pass.\n\n- Salt\n- Cloth"),
        (book, "spreadsheet", "| Item | Pieces |\n| --- | --- |\n| Tea | 3 |"),
    ):
        out = io.BytesIO()
        made.write(out)
        assert document(tmp_path, kind, out.getvalue()).text == expected
