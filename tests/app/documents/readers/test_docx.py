"""Word documents: headings, lists, tables, notes, changes, fields, text boxes, formulas."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from app.documents.readers import docx as reader
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, PageUnit, Warned
from document_writers import p, package, prose, r, word_file


def document(tmp_path: Path, data: bytes) -> Document:
    (tmp_path / "a.docx").write_bytes(data)
    return reader.read(Source(tmp_path / "a.docx"))


def style(name: str) -> str:
    return f'<w:pStyle w:val="{name}"/>'


def listed(number: int, level: int = 0) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'


def level(at: int, form: str, text: str, start: int = 1) -> str:
    return (
        f'<w:lvl w:ilvl="{at}"><w:start w:val="{start}"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


NUMBERING = (
    '<w:abstractNum w:abstractNumId="0">'
    + level(0, "decimal", "%1.")
    + level(1, "lowerLetter", "%2)")
    + level(2, "lowerRoman", "%1.%2.%3")
    + "</w:abstractNum>"
    + '<w:abstractNum w:abstractNumId="1">'
    + level(0, "bullet", "\uf0b7")
    + level(1, "bullet", "o")
    + "</w:abstractNum>"
    + '<w:abstractNum w:abstractNumId="2">'
    + level(0, "upperRoman", "%1", 4)
    + level(1, "decimal", "%1.%2")
    + "</w:abstractNum>"
    + "".join(
        f'<w:num w:numId="{i}"><w:abstractNumId w:val="{base}"/>{rest}</w:num>'
        for i, base, rest in (
            (1, 0, ""),
            (2, 1, ""),
            (3, 0, '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride>'),
            (4, 2, ""),
        )
    )
)


def cell(text: str, properties: str = "") -> str:
    inner = text if text.startswith("<") else p(text)
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{inner}</w:tc>"


def row(*cells: str, properties: str = "") -> str:
    made = "".join(each if each.startswith("<w:tc>") else cell(each) for each in cells)
    return f"<w:tr><w:trPr>{properties}</w:trPr>{made}</w:tr>"


def table(*rows: str) -> str:
    return f"<w:tbl><w:tblPr/><w:tblGrid/>{''.join(rows)}</w:tbl>"


def mark(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def filled(instruction: str, result: str) -> str:
    return (
        mark("begin")
        + f"<w:r><w:instrText> {instruction} </w:instrText></w:r>"
        + mark("separate")
        + result
        + mark("end")
    )


def box(*paragraphs: str) -> str:
    """A text box as Word writes it: the shape, and the same for old programs."""
    inner = "".join(map(p, paragraphs))
    return (
        "<w:r><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wp:anchor><a:graphic>"
        f"<wps:wsp><wps:txbx><w:txbxContent>{inner}</w:txbxContent></wps:txbx></wps:wsp>"
        "</a:graphic></wp:anchor></w:drawing></mc:Choice><mc:Fallback><w:pict><v:shape><v:textbox>"
        f"<w:txbxContent>{inner}</w:txbxContent></v:textbox></v:shape></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>"
    )


def note(identity: int, kind: str = "footnote") -> str:
    return f'<w:r><w:{kind}Reference w:id="{identity}"/></w:r>'


def m(tag: str, *parts: str, **named: str) -> str:
    inner = "".join(f"<m:{name}>{m_text(text)}</m:{name}>" for name, text in named.items())
    return f"<m:{tag}>{''.join(map(m_text, parts))}{inner}</m:{tag}>"


def m_text(text: str) -> str:
    return text if text.startswith("<") else f"<m:r><m:t>{text}</m:t></m:r>"


CASES: dict[str, tuple[str, str]] = {
    "paragraphs": (p("One") + p("Two"), "One\n\nTwo"),
    "runs are joined": (p(r("One, ") + r("two", "<w:b/>") + r("three")), "One, twothree"),
    "a word of two runs": (p(r("Project") + r("X2024", "<w:noProof/>")), "ProjectX2024"),
    "a document that is one text box": (p(box("All of it", "is here")), "All of it\n\nis here"),
    "tabs and breaks": (
        p(
            "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/><w:t>d</w:t></w:r>"
        ),
        "a b\nc-d",
    ),
    "headings": (
        p("Top", style("Title")) + p("One", style("H1")) + p("Deep", style("H3")) + p("Text"),
        "# Top\n\n# One\n\n### Deep\n\nText",
    ),
    "a heading by its base, and by its outline": (
        p("Based", style("Sub"))
        + p("Outlined", style("Out"))
        + p("Own", '<w:outlineLvl w:val="0"/>'),
        "## Based\n\n### Outlined\n\n# Own",
    ),
    "the deepest heading": (p("Nine", style("H9")), "###### Nine"),
    "a numbered heading": (
        p("Boats", style("H1") + listed(4)) + p("Small", style("H2") + listed(4, 1)),
        "# IV Boats\n\n## IV.1 Small",
    ),
    "a bulleted list": (
        p("a", listed(2)) + p("b", listed(2)) + p("c", listed(2, 1)) + p("End"),
        "- a\n- b\n  - c\n\nEnd",
    ),
    "a numbered list of three levels": (
        p("a", listed(1))
        + p("b", listed(1, 1))
        + p("c", listed(1, 2))
        + p("d", listed(1, 1))
        + p("e", listed(1))
        + p("f", listed(1, 1)),
        "1. a\n  a) b\n    1.a.i c\n  b) d\n2. e\n  a) f",
    ),
    "a list that goes on after a paragraph": (
        p("a", listed(1)) + p("Between") + p("b", listed(1)),
        "1. a\n\nBetween\n\n2. b",
    ),
    "a list that begins at another number": (
        p("a", listed(1)) + p("b", listed(3)) + p("c", listed(3)),
        "1. a\n7. b\n8. c",
    ),
    "a list by its style": (p("a", style("Listed")) + p("b", style("Listed")), "- a\n- b"),
    "a style's list that is switched off": (p("a", style("Listed") + listed(0)), "a"),
    "a table": (
        table(row("Item", "Price"), row("Tea", "4.50")),
        "| Item | Price |\n| --- | --- |\n| Tea | 4.50 |",
    ),
    "merged cells": (
        table(
            row(cell("Both", '<w:gridSpan w:val="2"/>'), "c"),
            row(cell("Down", '<w:vMerge w:val="restart"/>'), "e", "f"),
            row(cell("", "<w:vMerge/>"), "h", "i"),
        ),
        "| Both |  | c |\n| --- | --- | --- |\n| Down | e | f |\n|  | h | i |",
    ),
    "a row that begins later": (
        table(row("a", "b"), row("c", properties='<w:gridBefore w:val="1"/>')),
        "| a | b |\n| --- | --- |\n|  | c |",
    ),
    "paragraphs, bars and lists in cells": (
        table(
            row("a|b", cell(p("c") + p("d"))), row(cell(p("e", listed(1)) + p("f", listed(1))), "")
        ),
        "| a\\|b | c<br>d |\n| --- | --- |\n| 1. e<br>2. f |  |",
    ),
    "a table in a table": (
        table(row("a", cell(table(row("x", "y"), row("z", "w")) + p(""))), row("b", "c")),
        "| a | x, y<br>z, w |\n| --- | --- |\n| b | c |",
    ),
    "a table of one cell is a frame": (table(row(cell(p("In") + p("a frame")))), "In\n\na frame"),
    "a deleted row": (
        table(row("a", "b"), row("c", "d", properties="<w:del/>"), row("e", "f")),
        "| a | b |\n| --- | --- |\n| e | f |",
    ),
    "tracked changes": (
        p(
            r("The ")
            + f"<w:ins>{r('new ')}</w:ins>"
            + "<w:del><w:r><w:delText>old </w:delText></w:r></w:del>"
            + r("text")
            + f"<w:moveFrom>{r('gone')}</w:moveFrom><w:moveTo>{r(' here')}</w:moveTo>"
        ),
        "The new text here",
    ),
    "a paragraph whose end is deleted": (
        p(r("One "), "<w:rPr><w:del/></w:rPr>") + p("and two") + p("Three"),
        "One and two\n\nThree",
    ),
    "comments are left out": (
        p(
            f'<w:commentRangeStart w:id="1"/>{r("Text")}<w:commentRangeEnd w:id="1"/>'
            '<w:r><w:commentReference w:id="1"/></w:r>'
        ),
        "Text",
    ),
    "a link": (
        p(r("See ") + f'<w:hyperlink r:id="web">{r("the page")}</w:hyperlink>' + r(".")),
        "See [the page](https://example.org/).",
    ),
    "a link that is its own text": (
        p(f'<w:hyperlink r:id="web">{r("https://example.org/")}</w:hyperlink>'),
        "https://example.org/",
    ),
    "a link within the document": (
        p(f'<w:hyperlink w:anchor="x">{r("above")}</w:hyperlink>'),
        "above",
    ),
    "a field's result": (p(r("Page ") + filled("PAGE", r("7"))), "Page 7"),
    "a field with a link": (
        p(filled('HYPERLINK "https://example.org/a"', r("a page"))),
        "[a page](https://example.org/a)",
    ),
    "fields within fields": (
        p(
            mark("begin")
            + "<w:r><w:instrText>IF </w:instrText></w:r>"
            + filled("X", r("no"))
            + mark("separate")
            + filled("Y", r("yes"))
            + mark("end")
        ),
        "yes",
    ),
    "a simple field": (p(f'<w:fldSimple w:instr="DATE">{r("May 5")}</w:fldSimple>'), "May 5"),
    "a field over paragraphs": (
        p(mark("begin") + "<w:r><w:instrText>TOC</w:instrText></w:r>" + mark("separate") + r("One"))
        + p(r("Two") + mark("end")),
        "One\n\nTwo",
    ),
    "a text box once": (
        p(r("Before") + box("In the box", "Second")),
        "Before\n\nIn the box\n\nSecond",
    ),
    "hidden text": (
        p(r("Seen") + r("hidden", "<w:vanish/>") + r("x", '<w:rStyle w:val="Secret"/>')),
        "Seen",
    ),
    "text that is not hidden": (p(r("Seen", '<w:vanish w:val="0"/>')), "Seen"),
    "content controls": (
        f"<w:sdt><w:sdtPr/><w:sdtContent>{p('One')}{p('Two')}</w:sdtContent></w:sdt>"
        + p(f"<w:sdt><w:sdtContent>{r('In line')}</w:sdtContent></w:sdt>"),
        "One\n\nTwo\n\nIn line",
    ),
    "ruby": (
        p(f"<w:r><w:ruby><w:rt>{r('kan')}</w:rt><w:rubyBase>{r('漢')}</w:rubyBase></w:ruby></w:r>"),
        "漢",
    ),
    "symbols": (p('<w:r><w:sym w:font="Wingdings" w:char="F0A7"/></w:r>' + r(" a")), "• a"),
    "alternatives of whole paragraphs": (
        f"<mc:AlternateContent><mc:Choice Requires='x'>{p('New')}</mc:Choice>"
        f"<mc:Fallback>{p('Old')}</mc:Fallback></mc:AlternateContent>",
        "New",
    ),
    "the fallback of an alternative without text": (
        "<w:p><mc:AlternateContent><mc:Choice Requires='x'><w:r/></mc:Choice>"
        f"<mc:Fallback>{r('Old')}</mc:Fallback></mc:AlternateContent></w:p>",
        "Old",
    ),
    "from the right": (p(r("שלום עולם", "<w:rtl/>"), "<w:bidi/>"), "שלום עולם"),
    "a formula": (
        p(r("So ") + m("oMath", "x=", m("f", num="-b±" + "", den="2a"))),
        "So x=(-b±)/(2a)",
    ),
    "formulas of every kind": (
        p(
            m(
                "oMath",
                m("rad", deg="", e=m("sSup", e="b", sup="2") + m_text("-4ac")),
                m("nary", "<m:naryPr><m:chr m:val='∑'/></m:naryPr>", sub="i=1", sup="n", e="i"),
                m("d", e="a") + m("func", fName="sin", e="x"),
                m("m", m("mr", m("e", "1"), m("e", "2")) + m("mr", m("e", "3"), m("e", "4"))),
                m("sSubSup", e="x", sub="i", sup="2") + m("acc", e="y"),
            )
        ),
        "√(b^2-4ac)∑_(i=1)^n i(a)sinx[1, 2; 3, 4]x_i^2y\u0302",
    ),
    "a formula of its own": (p(m("oMathPara", m("oMath", "a=b"))), "a=b"),
}
LINKS = {"web": "https://example.org/"}


@pytest.mark.parametrize("is_strict", [False, True], ids=["transitional", "strict"])
@pytest.mark.parametrize("name", CASES)
def test_a_body_is_read(name: str, is_strict: bool, tmp_path: Path) -> None:
    body, expected = CASES[name]
    data = word_file(body, numbering=NUMBERING, links=LINKS, is_strict=is_strict)
    assert document(tmp_path, data).text == expected


def test_notes_follow_their_paragraph(tmp_path: Path) -> None:
    body = (
        p(r("One") + note(2) + r(" and two") + note(5, "endnote"))
        + p("Between")
        + table(row(cell(p(r("In a cell") + note(3))), "b"))
    )
    found = document(
        tmp_path,
        word_file(
            body,
            footnotes='<w:footnote w:id="0">'
            + p("sep")
            + "</w:footnote>"
            + f'<w:footnote w:id="2">{p("The first.")}{p("More.")}</w:footnote>'
            + f'<w:footnote w:id="3">{p("Third.")}</w:footnote>',
            endnotes=f'<w:endnote w:id="5">{p("At the end.")}</w:endnote>',
        ),
    )
    assert found.text == (
        "One[^1] and two[^2]\n\n[^1]: The first.\n\nMore.\n\n[^2]: At the end.\n\nBetween\n\n"
        "| In a cell[^3]<br>[^3]: Third. | b |\n| --- | --- |"
    )


def test_a_note_that_refers_to_itself_ends(tmp_path: Path) -> None:
    notes = f'<w:footnote w:id="2">{p(r("Again") + note(2))}</w:footnote>'
    assert document(tmp_path, word_file(p(r("A") + note(2)), footnotes=notes)).text == (
        "A[^1]\n\n[^1]: Again"
    )


def test_a_document_has_a_kind_a_title_and_one_page(tmp_path: Path) -> None:
    found = document(tmp_path, word_file(p("a"), title="Rivers &amp; boats"))
    assert (found.kind, found.unit, found.title) == (
        DocumentKind.WORD,
        PageUnit.NONE,
        "Rivers & boats",
    )
    assert len(found.pages) == 1
    assert document(tmp_path, word_file(p(""))).text == ""


def test_the_main_part_is_found_by_its_relation(tmp_path: Path) -> None:
    whole = word_file(p("Text"))
    (tmp_path / "in.docx").write_bytes(whole)
    from zipfile import ZipFile

    with ZipFile(tmp_path / "in.docx") as file:
        entries = {name: file.read(name) for name in file.namelist()}
    entries["word/document2.xml"] = entries.pop("word/document.xml")
    entries["_rels/.rels"] = entries["_rels/.rels"].replace(b"word/document", b"/word/document2")
    assert document(tmp_path, package(entries)).text == "Text"


def test_a_file_that_was_not_copied_to_its_end_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = word_file("".join(p(prose(i, 50)) for i in range(60)))
    at = whole.index(b"word/_rels")
    found = document(tmp_path, whole[: at * 2 // 3])
    assert found.text.startswith(prose(0, 50) + "\n\n" + prose(1, 50))
    assert found.warnings == (Warned(DocumentWarning.DAMAGED),)


def test_what_comes_before_a_damage_is_read(tmp_path: Path) -> None:
    whole = word_file(p("One", style("H1")) + p("Two") + "</w:p>" + p("Three"), styles="<w:style>")
    found = document(tmp_path, whole)
    assert found.text == "One\n\nTwo"
    assert found.warnings == (Warned(DocumentWarning.DAMAGED),)
    with pytest.raises(ExtractionError):
        document(tmp_path, word_file(p("") + "</w:p>"))


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ({"a": "b"}, ExtractionFault.DAMAGED),
        ({"word/document.xml": "<w:document"}, ExtractionFault.DAMAGED),
    ],
)
def test_what_is_no_document_says_so(
    entries: dict[str, str], fault: ExtractionFault, tmp_path: Path
) -> None:
    with pytest.raises(ExtractionError) as raised:
        document(tmp_path, package(entries))
    assert raised.value.fault is fault


def test_a_document_of_another_library_is_read(tmp_path: Path) -> None:
    from docx import Document as Writer

    made = Writer()
    made.core_properties.title = "Rivers"
    made.add_heading("The river", 0)
    made.add_heading("Boats", 2)
    made.add_paragraph("Small boats pass.")
    for text in ("Salt", "Cloth"):
        made.add_paragraph(text, style="List Bullet")
    for text in ("First", "Second"):
        made.add_paragraph(text, style="List Number")
    grid = made.add_table(2, 3)
    for i, each in enumerate(grid._cells):
        each.text = "abcdef"[i]
    grid.cell(0, 0).merge(grid.cell(0, 1))
    made.sections[0].header.paragraphs[0].text = "A header"
    made.sections[0].footer.paragraphs[0].text = "A footer"
    out = io.BytesIO()
    made.save(out)
    found = document(tmp_path, out.getvalue())
    assert found.title == "Rivers"
    assert found.text == (
        "# The river\n\n## Boats\n\nSmall boats pass.\n\n- Salt\n- Cloth\n\n1. First\n2. Second\n\n"
        "| a<br>b |  | c |\n| --- | --- | --- |\n| d | e | f |"
    )
