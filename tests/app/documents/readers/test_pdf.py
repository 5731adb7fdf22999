"""PDF files: reading order, paragraphs, tables, running lines, labels, forms, damage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.documents.pdf.paragraphs import joined
from app.documents.readers import pdf as reader
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, PageUnit, Warned
from document_writers import HEIGHT, PdfPage, pdf, prose, wrapped

W = DocumentWarning
A, B, C = prose(1, 60), prose(2, 60), prose(3, 60)
LONG = prose(4, 330)


def document(tmp_path: Path, data: bytes) -> Document:
    (tmp_path / "ü a.pdf").write_bytes(data)
    return reader.read(Source(tmp_path / "ü a.pdf"))


def texts(tmp_path: Path, *pages: PdfPage, **options: object) -> list[str]:
    return [page.text for page in document(tmp_path, pdf(pages, **options)).pages]


def columns(page: PdfPage, width: float, *places: tuple[float, float, str]) -> PdfPage:
    for x, y, text in places:
        page.lines(x, y, wrapped(text, width))
    return page


def rtl(text: str) -> bytes:
    """Hebrew letters as the characters of the font F2, in the order in which they are drawn."""
    return bytes(0x20 if each == " " else 0x41 + ord(each) - 0x05D0 for each in reversed(text))


HEBREW = {0x20: " ", **{0x41 + i: chr(0x05D0 + i) for i in range(27)}}
SHALOM = "שלום עולם טוב"


def page_with_footnote() -> PdfPage:
    return columns(PdfPage(), 460, (72, 100, A)).lines(72, 600, wrapped("1 " + B, 400, 7), 7, 9)


TABLE = [["Item", "Pieces", "Price"], ["Tea", "3", "4.50"], ["Coffee", "12", "20.00"]]
TABLE_TEXT = (
    "| Item | Pieces | Price |\n| --- | --- | --- |\n| Tea | 3 | 4.50 |\n| Coffee | 12 | 20.00 |"
)
XS, YS = [80, 200, 300], [300, 316, 332]
LINES_X, LINES_Y = [72, 190, 290, 400], [288, 304, 320, 336]


def hyphenated() -> PdfPage:
    lines = ["The conti-", "nent was a well-", "Known place of great impor\xad", "tance to all-in-"]
    lines.append("one boats.")
    return PdfPage().lines(72, 100, lines)


FULL = [
    "They sailed from the harbour before the sun was over the hills,",
    "Nobody had seen the other boats or heard the bells of the town,",
    "and the nets were as empty as on the day before the great storm.",
]
PAGES: dict[str, tuple[Callable[[], PdfPage], str]] = {
    "one paragraph": (lambda: columns(PdfPage(), 460, (72, 100, LONG)), LONG),
    "two paragraphs by a gap": (
        lambda: columns(PdfPage(), 460, (72, 100, A), (72, 200, B)),
        f"{A}\n\n{B}",
    ),
    "a line that ends early among full ones": (
        lambda: PdfPage().lines(72, 100, [*FULL[:1], "and came home late.", *FULL[1:]]),
        f"{FULL[0]} and came home late.\n{FULL[1]} {FULL[2]}",
    ),
    "two paragraphs by an indent": (
        lambda: (
            PdfPage()
            .lines(72, 100, wrapped(A, 440))
            .text(90, 148, "Indented it goes on with many more words until the line is full,")
            .lines(72, 160, wrapped("and " + B, 440))
        ),
        f"{A}\n\nIndented it goes on with many more words until the line is full,",
    ),
    "an address keeps its lines": (
        lambda: PdfPage().lines(72, 100, ["Anna Example", "12 Long Street Avenue", "Springfield"]),
        "Anna Example\n12 Long Street Avenue\nSpringfield",
    ),
    "two columns": (
        lambda: columns(PdfPage(), 220, (72, 100, LONG), (312, 100, B + " " + A)),
        f"{LONG}\n\n{B} {A}",
    ),
    "two columns drawn row by row": (
        lambda: [
            page := PdfPage(),
            [
                page.text(72, 100 + 12 * i, one).text(312, 100 + 12 * i, other)
                for i, (one, other) in enumerate(
                    zip(wrapped(A, 220), wrapped(B, 220), strict=False)
                )
            ],
            page,
        ][2],
        "",
    ),
    "two columns with other leadings": (
        lambda: PdfPage().lines(72, 100, wrapped(A, 220)).lines(312, 104, wrapped(B, 220, 8), 8, 9),
        f"{A}\n\n{B}",
    ),
    "three columns": (
        lambda: columns(PdfPage(), 145, (60, 90, A), (225, 90, B), (390, 90, C)),
        f"{A}\n\n{B}\n\n{C}",
    ),
    "a heading across two columns": (
        lambda: columns(PdfPage(), 220, (72, 120, A), (312, 120, B)).text(
            120, 80, "A long heading that stands across both columns", 16
        ),
        f"A long heading that stands across both columns\n\n{A}\n\n{B}",
    ),
    "columns between full lines": (
        lambda: columns(
            columns(PdfPage(), 460, (72, 90, C), (72, 400, C)), 220, (72, 150, A), (312, 150, B)
        ),
        f"{C}\n\n{A}\n\n{B}\n\n{C}",
    ),
    "two columns of two lines": (
        lambda: (
            PdfPage()
            .lines(60, 80, ["The committee reviewed the annual", "report and"], leading=14)
            .lines(330, 80, ["approved the budget for the", "coming fiscal year."], leading=14)
        ),
        "The committee reviewed the annual report and approved the budget for the coming fiscal year.",
    ),
    "a picture above the first column": (
        lambda: columns(PdfPage(), 220, (72, 300, A), (312, 100, LONG)).picture(72, 90, 200, 180),
        f"{A}\n\n{LONG}",
    ),
    "authors side by side above a centred heading": (
        lambda: columns(
            PdfPage()
            .lines(120, 100, ["Anna Example", "University of Nets", "anna@nets.org"])
            .lines(380, 100, ["Bob Other", "Institute of Gulls", "bob@gulls.org"])
            .text(280, 150, "Abstract"),
            410,
            (100, 180, A),
        ),
        "| Anna Example | Bob Other |\n| --- | --- |\n| University of Nets | Institute of Gulls |\n"
        f"| anna@nets.org | bob@gulls.org |\n\nAbstract\n\n{A}",
    ),
    "a short second column": (
        lambda: columns(PdfPage(), 220, (72, 100, LONG), (312, 100, A)),
        f"{LONG}\n\n{A}",
    ),
    "a sentence goes on in the next column": (
        lambda: columns(
            PdfPage(),
            220,
            (72, 100, A.rstrip(".") + " and"),
            (312, 100, "then " + B[0].lower() + B[1:]),
        ),
        f"{A.rstrip('.')} and then {B[0].lower() + B[1:]}",
    ),
    "hyphens at line ends": (
        hyphenated,
        "The continent was a well-Known place of great importance to all-in-one boats.",
    ),
    "ligatures": (lambda: PdfPage().text(72, 100, b"AB\x20CD", font="F2"), "office flat"),
    "a ruled table": (lambda: PdfPage().grid(LINES_X, LINES_Y).cells(XS, YS, TABLE), TABLE_TEXT),
    "a ruled table in boxes": (
        lambda: [
            page := PdfPage().cells(XS, YS, TABLE),
            [
                page.box(LINES_X[i], LINES_Y[j], LINES_X[i + 1], LINES_Y[j + 1])
                for i in range(3)
                for j in range(3)
            ],
            page,
        ][2],
        TABLE_TEXT,
    ),
    "a ruled table between paragraphs": (
        lambda: (
            columns(PdfPage(), 460, (72, 100, A), (72, 360, B))
            .grid(LINES_X, LINES_Y)
            .cells(XS, YS, TABLE)
        ),
        f"{A}\n\n{TABLE_TEXT}\n\n{B}",
    ),
    "a ruled table with cells of several lines": (
        lambda: (
            PdfPage()
            .grid([72, 200, 400], [100, 116, 150])
            .cells([80, 210], [112, 128], [["Name", "Note"], ["Tea", "It is green and"]])
            .text(210, 140, "keeps long")
        ),
        "| Name | Note |\n| --- | --- |\n| Tea | It is green and keeps long |",
    ),
    "a ruled table with a merged cell": (
        lambda: (
            PdfPage()
            .grid([72, 400], [100, 116, 132, 148])
            .rule(200, 116, 200, 148)
            .text(80, 112, "Both columns")
            .cells([80, 210], [128, 144], [["a", "b"], ["c", "d"]])
        ),
        "| Both columns |  |\n| --- | --- |\n| a | b |\n| c | d |",
    ),
    "a ruled table without lines between its rows": (
        lambda: (
            PdfPage()
            .grid(LINES_X, [288, 304, 354])
            .cells(XS, [300, 316, 332, 348], [*TABLE, ["Milk", "1", "1.10"]])
        ),
        TABLE_TEXT + "\n| Milk | 1 | 1.10 |",
    ),
    "a table of aligned columns": (lambda: PdfPage().cells(XS, YS, TABLE), TABLE_TEXT),
    "a table of aligned columns between paragraphs": (
        lambda: columns(PdfPage(), 460, (72, 100, A), (72, 380, B)).cells(XS, YS, TABLE),
        f"{A}\n\n{TABLE_TEXT}\n\n{B}",
    ),
    "a frame around text is no table": (
        lambda: columns(PdfPage(), 400, (80, 120, A)).box(72, 100, 500, 200),
        A,
    ),
    "code keeps its indents": (
        lambda: (
            PdfPage()
            .text(72, 100, "def read(path):", font="F3")
            .text(96, 112, "with open(path) as file:", font="F3")
            .text(120, 124, "return file.read()", font="F3")
        ),
        "def read(path):\n    with open(path) as file:\n        return file.read()",
    ),
    "numbers of lines are left out": (
        lambda: columns(
            PdfPage().lines(50, 100, [str(i + 1) for i in range(len(wrapped(LONG, 400)))]),
            400,
            (80, 100, LONG),
        ),
        LONG,
    ),
    "centred lines": (
        lambda: PdfPage().text(252.5, 100, "A Long Report").text(246, 114, "by Anna Example"),
        "A Long Report\nby Anna Example",
    ),
    "the same text drawn twice": (
        lambda: PdfPage().text(72, 100, "Bold title", 14).text(72.3, 100, "Bold title", 14),
        "Bold title",
    ),
    "a list keeps its lines": (
        lambda: PdfPage().lines(
            72, 100, ["1. Bring the boat to the shore", "2. Mend the nets", "3. Count the gulls"]
        ),
        "1. Bring the boat to the shore\n\n2. Mend the nets\n\n3. Count the gulls",
    ),
    "numbers of a list that stand off": (
        lambda: PdfPage().cells(
            [72, 100], [100, 112, 124], [["1.", "Boats"], ["2.", "Nets"], ["3.", "Gulls"]]
        ),
        "1. Boats\n\n2. Nets\n\n3. Gulls",
    ),
    "a table of contents": (
        lambda: PdfPage().lines(
            72,
            100,
            ["Boats" + "." * 90 + " 3", "Nets" + " ." * 45 + " 12", "Gulls" + "." * 90 + " 14"],
        ),
        "Boats ... 3\nNets ... 12\nGulls ... 14",
    ),
    "rotated by its page": (
        lambda: [
            page := PdfPage(rotate=90),
            [page.text(100 + 12 * i, 700, line, turn=1) for i, line in enumerate(wrapped(A, 500))],
            page,
        ][2],
        A,
    ),
    "rotated text": (
        lambda: [
            page := PdfPage(),
            [page.text(500 - 12 * i, 100, line, turn=3) for i, line in enumerate(wrapped(A, 500))],
            page,
        ][2],
        A,
    ),
    "upside down": (
        lambda: [
            page := PdfPage(rotate=180),
            [page.text(500, 700 - 12 * i, line, turn=2) for i, line in enumerate(wrapped(A, 400))],
            page,
        ][2],
        A,
    ),
    "a note along the edge comes last": (
        lambda: columns(PdfPage(), 440, (90, 100, A)).text(40, 500, "Draft of May", turn=1),
        f"{A}\n\nDraft of May",
    ),
    "from the right": (lambda: PdfPage().text(72, 100, rtl(SHALOM), font="F2"), SHALOM),
    "words from the right, one by one": (
        lambda: (
            PdfPage()
            .text(172, 100, rtl("שלום"), font="F2")
            .text(130, 100, rtl("עולם"), font="F2")
            .text(100, 100, rtl("טוב"), font="F2")
        ),
        SHALOM,
    ),
    "a form": (
        lambda: (
            PdfPage()
            .lines(72, 100, ["Name:", "Agreed:"], leading=20)
            .field(120, 90, 300, 104, "name", "/FT /Tx /V (Anna Example)")
            .field(
                120,
                110,
                134,
                124,
                "yes",
                "/FT /Btn /V /On /AS /On /AP << /N << /On EMPTY /Off EMPTY >> >>",
            )
        ),
        "Name: Anna Example\nAgreed: [x]",
    ),
    "a footnote in small type": (page_with_footnote, f"{A}\n\n1 {B}"),
    "text beyond the page is not read": (
        lambda: PdfPage().text(72, 100, "Here").text(900, 100, "Beyond").text(72, -50, "Above"),
        "Here",
    ),
    "quotes and accents": (
        lambda: PdfPage().text(72, 100, "“Où est l’été?” – “Là…”"),
        "“Où est l’été?” – “Là…”",
    ),
    "symbols of bullets": (lambda: PdfPage().text(72, 100, b"E\x20D", font="F2"), "• flat"),
}
LIGATURES = {0x20: " ", 0x41: "o\ufb03", 0x42: "ce", 0x43: "\ufb02", 0x44: "at", 0x45: "\uf0b7"}
PAGES["ligatures"] = (lambda: PdfPage().text(72, 100, b"AB\x20CD", font="F2"), "office flat")
PAGES["symbols of bullets"] = (lambda: PdfPage().text(72, 100, b"E\x20CD", font="F2"), "• flat")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_read_in_order(name: str, tmp_path: Path) -> None:
    make, expected = PAGES[name]
    letters = LIGATURES if name in ("ligatures", "symbols of bullets") else HEBREW
    found = texts(tmp_path, make(), letters=letters)
    if name == "two columns drawn row by row":
        count = min(len(wrapped(A, 220)), len(wrapped(B, 220)))
        parts = [" ".join(wrapped(each, 220)[:count]) for each in (A, B)]
        assert found[0].replace("\n\n", " ") == " ".join(parts)
    elif name == "two paragraphs by an indent":
        assert found[0].startswith(expected)
        assert found[0].count("\n\n") == 1
    else:
        assert found == [expected]


@pytest.mark.parametrize(
    ("lines", "whole"),
    [
        (["打开PDF的", "文件"], "打开PDF的文件"),
        (["文", "件"], "文件"),
        (["文件", "PDF"], "文件 PDF"),
        (["PDF", "文件"], "PDF 文件"),
    ],
)
def test_lines_of_a_script_without_spaces_are_joined_without_one(
    lines: list[str], whole: str
) -> None:
    assert joined(lines) == whole


def numbered(count: int, head: Callable[[int], str], foot: Callable[[int], str]) -> list[PdfPage]:
    pages: list[PdfPage] = []
    for i in range(count):
        page = columns(PdfPage(), 460, (72, 110, prose(100 + i, 60)))
        page.text(72 if i % 2 else 300, 40, head(i)).text(300, 760, foot(i))
        pages.append(page)
    return pages


ROMAN = ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii"]
RUNNING: dict[str, tuple[Callable[[int], str], Callable[[int], str]]] = {
    "a title and numbers": (lambda _i: "Report on boats", lambda i: f"Page {i + 1} of 8"),
    "even and odd pages": (lambda i: "Boats" if i % 2 else "Chapter 2", lambda i: str(i + 1)),
    "Roman numbers": (lambda _i: "Preface", lambda i: ROMAN[i]),
    "numbers that do not begin at 1": (lambda _i: "", lambda i: f"- {i + 97} -"),
    "chapters and their pages": (
        lambda i: f"Chapter {1 + i // 4}",
        lambda i: f"{1 + i // 4}-{i + 1}",
    ),
}


@pytest.mark.parametrize("name", RUNNING)
def test_running_lines_are_left_out(name: str, tmp_path: Path) -> None:
    found = texts(tmp_path, *numbered(8, *RUNNING[name]))
    assert found == [prose(100 + i, 60) for i in range(8)]


def test_a_line_that_does_not_repeat_is_read(tmp_path: Path) -> None:
    heads = ["Boats", "Nets", "Gulls", "Salt", "Cloth", "Maps"]
    found = texts(tmp_path, *numbered(6, lambda i: heads[i], lambda i: f"Total {i * i * 7 + 3}"))
    for i, text in enumerate(found):
        assert text == f"{heads[i]}\n\n{prose(100 + i, 60)}\n\nTotal {i * i * 7 + 3}"


def test_pages_of_one_line_keep_it(tmp_path: Path) -> None:
    found = texts(tmp_path, *(PdfPage().text(72, 60, f"This is page {i}") for i in range(5)))
    assert found == [f"This is page {i}" for i in range(5)]


def test_a_repeated_head_of_a_table_is_read(tmp_path: Path) -> None:
    rows = [["Day", "Boats", "Nets", "Gulls"], *([str(i), "1", "2", "3"] for i in range(3))]
    page = [PdfPage().cells([72, 172, 272, 372], range(60, 130, 16), rows) for _ in range(4)]
    assert all(text.startswith("| Day | Boats | Nets | Gulls |") for text in texts(tmp_path, *page))


def test_pages_have_the_labels_of_the_file(tmp_path: Path) -> None:
    pages = [PdfPage().text(72, 300, f"Text {i}") for i in range(5)]
    labels = "/PageLabels << /Nums [0 << /S /r >> 2 << /S /D >> 4 << /P (A-) /S /D /St 7 >>] >>"
    found = document(tmp_path, pdf(pages, catalog=labels, info="/Title (A report)"))
    assert [page.label for page in found.pages] == ["i", "ii", "1", "2", "A-7"]
    assert (found.kind, found.unit, found.title) == (DocumentKind.PDF, PageUnit.PAGE, "A report")
    plain = document(tmp_path, pdf(pages))
    assert [page.label for page in plain.pages] == ["1", "2", "3", "4", "5"]


def test_titles_of_the_outline_are_headings(tmp_path: Path) -> None:
    pages = [
        columns(PdfPage().text(72, 90, "1 The river", 16), 460, (72, 130, A)),
        columns(PdfPage().text(72, 90, "1.1  Boats – “small”", 12), 460, (72, 130, B)),
    ]
    outline = [("The River", 1, 0), ("1.1 Boats - small", 2, 1), ("Not there", 1, 1)]
    found = document(tmp_path, pdf(pages, outline=outline))
    assert [page.text for page in found.pages] == [
        f"# 1 The river\n\n{A}",
        f"## 1.1 Boats – “small”\n\n{B}",
    ]


def test_pages_that_are_pictures_are_named(tmp_path: Path) -> None:
    pages = [PdfPage().text(72, 300, "Text"), PdfPage().picture(0, 0, 612, 792), PdfPage()]
    pages += [PdfPage().picture(0, 0, 612, 792)]
    found = document(tmp_path, pdf(pages))
    assert found.warnings == (Warned(W.SCANNED, ("2", "4")),)


def test_scanned_pages_with_a_stamp_are_named(tmp_path: Path) -> None:
    pages = [
        PdfPage().picture(50, 80, 500, 600).text(72, 30, "Received").text(300, 770, f"{i + 1} / 6")
        for i in range(6)
    ]
    found = document(tmp_path, pdf(pages))
    assert [page.text for page in found.pages] == [""] * 6
    assert found.warnings == (Warned(W.SCANNED, tuple("123456")),)


def test_characters_without_a_meaning_are_damage(tmp_path: Path) -> None:
    page = PdfPage().text(72, 100, b"AAAA BBBB", font="F2")
    found = document(tmp_path, pdf([page], letters={0x41: "\ue001", 0x42: "\ue002", 0x20: " "}))
    assert found.warnings == (Warned(W.DAMAGED, ("1",)),)


def test_a_cut_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    pages = [columns(PdfPage(), 460, (72, 110, prose(i, 60))) for i in range(4)]
    data = pdf(pages)
    found = document(tmp_path, data[: data.rindex(b"xref\n")])
    assert found.warnings == (Warned(W.DAMAGED),)
    assert [page.text for page in found.pages] == [prose(i, 60) for i in range(4)]
    with pytest.raises(ExtractionError) as raised:
        document(tmp_path, data[:400])
    assert raised.value.fault is ExtractionFault.DAMAGED


def test_a_page_that_is_missing_does_not_lose_the_others(tmp_path: Path) -> None:
    data = pdf([PdfPage().text(72, 300, "One"), PdfPage().text(72, 300, "Two")])
    at = data.index(b"<< /Type /Page /Parent", data.index(b"<< /Type /Page /Parent") + 9)
    broken = (
        data[:at]
        + b"(x)".ljust(data.index(b"endobj", at) - at - 1)
        + data[data.index(b"endobj", at) - 1 :]
    )
    found = document(tmp_path, broken)
    assert [page.text for page in found.pages] == ["One", ""]
    assert found.warnings == (Warned(W.DAMAGED, ("2",)),)


@pytest.mark.parametrize(("user", "opens"), [("", True), ("secret", False)])
def test_only_a_password_for_opening_protects(user: str, opens: bool, tmp_path: Path) -> None:
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    path = tmp_path / "a.pdf"
    lock = StandardEncryption(user, "owner", canCopy=0, canPrint=0, strength=128)
    canvas = Canvas(str(path), encrypt=lock)
    canvas.drawString(72, 700, "Private words")
    canvas.save()
    if opens:
        assert reader.read(Source(path)).text == "Private words"
        return
    with pytest.raises(ExtractionError) as raised:
        reader.read(Source(path))
    assert raised.value.fault is ExtractionFault.PROTECTED


def test_a_long_file_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MOST_CHARACTERS", 25)
    pages = [PdfPage().text(72, 300, "Ten letters") for _ in range(4)]
    found = document(tmp_path, pdf(pages))
    assert [len(page.text) for page in found.pages] == [11, 11, 11]


@pytest.mark.skipif(sys.platform != "linux", reason="names are text here")
def test_a_name_that_is_no_text_is_found(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xfe.pdf")
    path.write_bytes(pdf([PdfPage().text(72, 300, "Text")]))
    assert reader.read(Source(path)).text == "Text"


def test_a_page_is_as_tall_as_it_says(tmp_path: Path) -> None:
    wide = PdfPage(HEIGHT, 612).text(700, 100, "To the right")
    assert texts(tmp_path, wide) == ["To the right"]


def test_flowing_text_of_a_layout_library_is_read(tmp_path: Path) -> None:
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Table

    styles = getSampleStyleSheet()
    path = tmp_path / "a.pdf"
    table = Table(
        [["Item", "Price"], ["Tea", "4.50"]], style=[("GRID", (0, 0), (-1, -1), 1, "black")]
    )
    story = [
        Paragraph("The river", styles["Heading1"]),
        Paragraph(LONG, styles["BodyText"]),
        table,
        Paragraph(A, styles["Bullet"], bulletText="•"),
    ]
    SimpleDocTemplate(str(path), title="Rivers").build(story)
    found = reader.read(Source(path))
    assert found.title == "Rivers"
    assert found.text == (
        f"The river\n\n{LONG}\n\n| Item | Price |\n| --- | --- |\n| Tea | 4.50 |\n\n• {A}"
    )
