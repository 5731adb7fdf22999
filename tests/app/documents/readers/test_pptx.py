"""PowerPoint presentations: titles, reading order, lists, tables, charts, notes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from app.documents.readers import pptx as reader
from app.documents.source import Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, PageUnit, Warned
from document_writers import CHART, CHART_TEXT, DIAGRAM, p, slide_file, word_file


def document(tmp_path: Path, data: bytes) -> Document:
    (tmp_path / "a.pptx").write_bytes(data)
    return reader.read(Source(tmp_path / "a.pptx"))


def place(x: int, y: int, w: int = 100, h: int = 50, inner: str = "") -> str:
    return f'<a:xfrm><a:off x="{x}" y="{y}"/><a:ext cx="{w}" cy="{h}"/>{inner}</a:xfrm>'


def ap(text: str, properties: str = "", level: int = 0) -> str:
    inner = text if text.startswith("<") else f"<a:r><a:t>{text}</a:t></a:r>"
    return f'<a:p><a:pPr lvl="{level}">{properties}</a:pPr>{inner}</a:p>'


def sp(*paragraphs: str, kind: str = "", index: str = "", where: str = "") -> str:
    mark = (
        f'<p:ph{f" type={chr(34)}{kind}{chr(34)}" if kind != "obj" else ""} idx="{index}"/>'
        if kind
        else ""
    )
    inner = "".join(each if each.startswith("<a:p>") else ap(each) for each in paragraphs)
    return (
        f"<p:sp><p:nvSpPr><p:nvPr>{mark}</p:nvPr></p:nvSpPr><p:spPr>{where}</p:spPr>"
        f"<p:txBody><a:bodyPr/>{inner}</p:txBody></p:sp>"
    )


def frame(inner: str, where: str = "") -> str:
    return (
        f"<p:graphicFrame><p:nvGraphicFramePr/>{where.replace('a:xfrm', 'p:xfrm')}"
        f"<a:graphic><a:graphicData>{inner}</a:graphicData></a:graphic></p:graphicFrame>"
    )


def tc(text: str, about: str = "") -> str:
    return f"<a:tc {about}><a:txBody>{ap(text)}</a:txBody></a:tc>"


LAYOUT = sp("Title", kind="title", where=place(0, 0)) + sp(
    "x", kind="obj", index="1", where=place(0, 100)
)
LAYOUT += sp("x", kind="obj", index="2", where=place(200, 100)) + sp(
    "Layout text", where=place(0, 400)
)
CASES: dict[str, tuple[str, str]] = {
    "a title and a text": (
        sp("Body", where=place(0, 100)) + sp("The title", kind="title"),
        "# The title\n\nBody",
    ),
    "a title of two lines": (
        sp(ap("<a:r><a:t>One</a:t></a:r><a:br/><a:r><a:t>two</a:t></a:r>"), kind="ctrTitle"),
        "# One two",
    ),
    "from the top to the bottom": (
        sp("Low", where=place(0, 300))
        + sp("High", where=place(300, 10))
        + sp("Middle", where=place(0, 150)),
        "High\n\nMiddle\n\nLow",
    ),
    "side by side from the left": (
        sp("Right", where=place(300, 100))
        + sp("Left", where=place(0, 110))
        + sp("Below", where=place(0, 300)),
        "Left\n\nRight\n\nBelow",
    ),
    "a tall shape beside small ones": (
        sp("Tall", where=place(300, 100, 100, 400))
        + sp("Two", where=place(0, 300))
        + sp("One", where=place(0, 100))
        + sp("End", where=place(0, 600)),
        "One\n\nTwo\n\nTall\n\nEnd",
    ),
    "places of the layout": (
        sp("Right", kind="obj", index="2")
        + sp("Left", kind="obj", index="1")
        + sp("T", kind="title"),
        "# T\n\nLeft\n\nRight",
    ),
    "groups": (
        sp("Middle", where=place(0, 150))
        + "<p:grpSp><p:grpSpPr>"
        + place(0, 200, 100, 100, '<a:chOff x="0" y="0"/><a:chExt cx="1000" cy="1000"/>')
        + "</p:grpSpPr>"
        + sp("Last", where=place(0, 900, 10, 10))
        + sp("Third", where=place(0, 0, 10, 10))
        + "</p:grpSp>",
        "Middle\n\nThird\n\nLast",
    ),
    "groups within groups": (
        "<p:grpSp><p:grpSp><p:grpSp>" + sp("Deep") + "</p:grpSp></p:grpSp></p:grpSp>",
        "Deep",
    ),
    "a list in a placeholder": (
        sp(ap("a"), ap("b", level=1), ap("c"), kind="obj", index="1"),
        "- a\n  - b\n- c",
    ),
    "one paragraph in a placeholder": (sp("Alone", kind="obj", index="1"), "Alone"),
    "bullets of their own": (
        sp(ap("a", '<a:buChar char="•"/>'), ap("b", '<a:buChar char="•"/>')),
        "- a\n- b",
    ),
    "paragraphs without bullets": (
        sp(ap("a", "<a:buNone/>"), ap("b", "<a:buNone/>"), kind="obj", index="1"),
        "a\n\nb",
    ),
    "numbers": (
        sp(
            ap("a", '<a:buAutoNum type="arabicPeriod"/>'),
            ap("b", '<a:buAutoNum type="alphaLcParenR"/>', 1),
            ap("c", '<a:buAutoNum type="arabicPeriod"/>'),
            ap("d", '<a:buAutoNum type="romanUcPeriod" startAt="4"/>', 1),
        ),
        "1. a\n  a) b\n2. c\n  IV. d",
    ),
    "footers and numbers of slides are left out": (
        sp("5", kind="sldNum") + sp("Foot", kind="ftr") + sp("May", kind="dt") + sp("Text"),
        "Text",
    ),
    "links and fields": (
        sp(
            ap(
                '<a:r><a:rPr><a:hlinkClick r:id="web"/></a:rPr><a:t>the page</a:t></a:r>'
                '<a:fld type="datetime"><a:t> 5 May</a:t></a:fld>'
            )
        ),
        "[the page](https://example.org/) 5 May",
    ),
    "a table": (
        frame(
            "<a:tbl><a:tr>"
            + tc("Both", 'gridSpan="2"')
            + tc("x", 'hMerge="1"')
            + "</a:tr><a:tr>"
            + tc("a|b")
            + tc("c")
            + "</a:tr></a:tbl>"
        ),
        "| Both |  |\n| --- | --- |\n| a\\|b | c |",
    ),
    "a chart": (frame('<c:chart r:id="chart"/>'), CHART_TEXT),
    "a diagram": (frame('<dgm:relIds r:dm="data"/>'), "One step\n\nTwo steps"),
    "a formula": (
        sp(
            ap(
                "<a:r><a:t>So </a:t></a:r><mc:AlternateContent><mc:Choice Requires='a14'><a14:m><m:oMath>"
                "<m:r><m:t>a=b</m:t></m:r></m:oMath></a14:m></mc:Choice><mc:Fallback/></mc:AlternateContent>"
            )
        ),
        "So a=b",
    ),
    "alternatives of shapes": (
        f"<mc:AlternateContent><mc:Choice Requires='x'>{sp('New')}</mc:Choice>"
        f"<mc:Fallback>{sp('Old')}</mc:Fallback></mc:AlternateContent>",
        "New",
    ),
    "a connector and a picture": ("<p:cxnSp><p:spPr/></p:cxnSp><p:pic/>" + sp("Text"), "Text"),
}


@pytest.mark.parametrize("is_strict", [False, True], ids=["transitional", "strict"])
@pytest.mark.parametrize("name", CASES)
def test_a_slide_is_read(name: str, is_strict: bool, tmp_path: Path) -> None:
    shapes, expected = CASES[name]
    data = slide_file([shapes], layout=LAYOUT, is_strict=is_strict)
    if name == "a chart" and is_strict:
        assert "purl.oclc.org" not in CHART
    assert document(tmp_path, data).text == expected


def test_every_slide_is_a_page_in_the_order_of_the_presentation(tmp_path: Path) -> None:
    shapes = [sp("First"), sp("Second"), "", sp("Fourth")]
    notes = {1: sp("Say hello.", kind="body") + sp("7", kind="sldNum") + sp("", kind="sldImg")}
    found = document(tmp_path, slide_file(shapes, notes=notes, hidden=[3]))
    assert [page.text for page in found.pages] == [
        "First",
        "Second\n\nNotes: Say hello.",
        "",
        "(hidden slide)\n\nFourth",
    ]
    assert [page.label for page in found.pages] == ["1", "2", "3", "4"]
    assert (found.kind, found.unit) == (DocumentKind.SLIDES, PageUnit.SLIDE)
    assert document(tmp_path, slide_file([""])).text == ""


def test_a_damaged_slide_does_not_lose_the_others(tmp_path: Path) -> None:
    found = document(tmp_path, slide_file([sp("One"), "</p:sp>", sp("Three")]))
    assert [page.text for page in found.pages] == ["One", "", "Three"]
    assert found.warnings == (Warned(DocumentWarning.DAMAGED),)


def test_a_long_presentation_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.documents.office.slides.MOST_CHARACTERS", 7)
    found = document(tmp_path, slide_file([sp("First"), sp("Second"), sp("Third")]))
    assert [page.text for page in found.pages] == ["First", "Second"]


def test_a_presentation_of_another_library_is_read(tmp_path: Path) -> None:
    from pptx import Presentation
    from pptx.util import Inches

    made = Presentation()
    made.core_properties.title = "Rivers"
    slide = made.slides.add_slide(made.slide_layouts[3])  # two contents
    slide.shapes.title.text = "The river"
    slide.placeholders[2].text = "Right"
    slide.placeholders[1].text = "Boats\nNets"
    grid = slide.shapes.add_table(2, 2, Inches(1), Inches(6), Inches(4), Inches(1)).table
    for i, text in enumerate("abcd"):
        grid.cell(i // 2, i % 2).text = text
    slide.notes_slide.notes_text_frame.text = "Speak slowly."
    out = io.BytesIO()
    made.save(out)
    found = document(tmp_path, out.getvalue())
    assert found.title == "Rivers"
    assert found.text == (
        "# The river\n\n- Boats\n- Nets\n\n| a | b |\n| --- | --- |\n| c | d |\n\nRight\n\n"
        "Notes: Speak slowly."
    )


def test_charts_and_diagrams_of_word_documents_are_read(tmp_path: Path) -> None:
    import zipfile

    from app.documents.readers import docx
    from document_writers import package, relations

    drawing = (
        "<w:r><w:drawing><a:graphic><a:graphicData><c:chart r:id='chart' "
        "xmlns:c='http://schemas.openxmlformats.org/drawingml/2006/chart'/></a:graphicData>"
        "</a:graphic></w:drawing></w:r><w:r><w:drawing><a:graphic><a:graphicData><dgm:relIds r:dm='d' "
        "xmlns:dgm='http://schemas.openxmlformats.org/drawingml/2006/diagram'/></a:graphicData>"
        "</a:graphic></w:drawing></w:r>"
    )
    (tmp_path / "in.docx").write_bytes(word_file(p("Before") + p(drawing) + p("After")))
    with zipfile.ZipFile(tmp_path / "in.docx") as file:
        entries = {name: file.read(name) for name in file.namelist()}
    entries["word/charts/chart1.xml"] = CHART.encode()
    entries["word/diagrams/data1.xml"] = DIAGRAM.encode()
    entries["word/_rels/document.xml.rels"] = relations(
        {"chart": ("chart", "charts/chart1.xml"), "d": ("diagramData", "diagrams/data1.xml")}
    ).encode()
    (tmp_path / "a.docx").write_bytes(package(entries))
    assert (
        docx.read(Source(tmp_path / "a.docx")).text
        == f"Before\n\n{CHART_TEXT}\n\nOne step\n\nTwo steps\n\nAfter"
    )
