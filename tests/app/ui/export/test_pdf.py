"""PDF export: what stays together on a page, and the file itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pypdfium2
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QFont, QPainter
from PySide6.QtWidgets import QApplication

from app.domain.chat_tree import ChatTree, node
from app.domain.documents import PageUnit, Passage
from app.domain.parts import PassagesPart, TextPart, ThoughtPart
from app.ui.export import pdf
from app.ui.export.pdf import pdf_steps, rows_that_fit, together
from app.ui.theme.theme import Theme
from engine import Role

SOURCE = """# Heading

Text with $a^2$ and `code`.

$$\\frac{a}{b}$$

$$\\wrong{$$

```python
def f(): return 1
```

> - quoted
>   1. nested

| a | b |
|---|---|
| 1 | $x$ |

---

نص عربي
"""


class Rows:
    """Rows of one height."""

    def __init__(self, count: int, height: float = 10.0) -> None:
        self.tops: Sequence[float] = [n * height for n in range(count + 1)]

    def paint(self, painter: QPainter, at: QPointF, first: int, last: int) -> None:
        raise AssertionError


def chat(*texts: str) -> ChatTree:
    messages = tuple(
        node(n, n - 1 or None, Role.USER if n % 2 else Role.ASSISTANT, (TextPart(text),))
        for n, text in enumerate(texts, 1)
    )
    return ChatTree("Title", 1.7e9, 1.7e9, messages, len(messages))


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    made = Theme(qapp, "light")
    yield made
    made.deleteLater()


def write(tree: ChatTree, path: Path) -> bytes:
    steps = pdf_steps(tree)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            path.write_bytes(end.value)
            return end.value
        QApplication.processEvents()


def pages(content: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", content))


@pytest.mark.parametrize(
    ("count", "first", "room", "empty", "end"),
    [
        (5, 0, 100.0, False, 5),  # all fit
        (9, 0, 50.0, False, 5),
        (9, 0, 15.0, False, 0),  # one line alone goes to the next page
        (9, 0, 85.0, False, 7),  # the last line is not alone on the next page
        (3, 0, 25.0, False, 0),  # three lines stay together
        (3, 0, 25.0, True, 2),  # unless a page is too low for them
        (9, 8, 5.0, True, 9),  # a row that is higher than a page
    ],
)
def test_lines_are_not_left_alone(
    count: int, first: int, room: float, empty: bool, end: int
) -> None:
    assert rows_that_fit(Rows(count), first, room, is_page_empty=empty) == end


def test_no_more_stays_together_than_a_page_has(theme: Theme) -> None:
    assert together(Rows(3), 0, 100.0) == 3
    assert together(Rows(9), 0, 100.0) == 2
    assert together(Rows(3, height=60.0), 0, 100.0) == 1


def test_every_kind_of_block_is_written(theme: Theme, tmp_path: Path) -> None:
    content = write(chat("What?\n\n  Really", SOURCE), tmp_path / "x.pdf")
    assert content.startswith(b"%PDF")
    assert content.rstrip().endswith(b"%%EOF")
    assert b"/FontFile2" in content or b"/FontFile3" in content  # the fonts are in it
    assert pages(content) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["x.pdf"]


def test_a_long_chat_has_pages_and_every_line_is_on_one(
    theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that are painted are all rows of the chat, each of them once, within its page."""
    painted: list[tuple[object, int, int, float, float]] = []
    paint = pdf._Pages._paint  # pyright: ignore[reportPrivateUsage]

    def record(self: pdf._Pages, rows: pdf.Rows, first: int, last: int, left: float) -> None:  # pyright: ignore[reportPrivateUsage]
        before = self.y
        paint(self, rows, first, last, left)
        painted.append((rows, first, last, before, self.height))

    monkeypatch.setattr(pdf._Pages, "_paint", record)  # pyright: ignore[reportPrivateUsage]
    code = "\n".join(f"line {n}" for n in range(200))
    text = "\n\n".join(f"## Part {n}\n\n{'word ' * 150}" for n in range(20))
    content = write(chat("Q", f"```\n{code}\n```\n\n{text}"), tmp_path / "x.pdf")
    assert pages(content) > 4
    ends: dict[int, int] = {}
    for rows, first, last, top, height in painted:
        assert first == ends.get(id(rows), 0)
        ends[id(rows)] = last
        tops = rows.tops  # type: ignore[attr-defined]
        assert top + tops[last] - tops[first] <= height + 0.01
    for rows, *_ in painted:
        assert ends[id(rows)] == len(rows.tops) - 1  # type: ignore[attr-defined]


def test_a_heading_is_on_the_page_of_what_follows(
    theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_pages: list[int] = []
    order: list[str] = []
    paint, turn = pdf._Pages._paint, pdf._Pages._new_page  # pyright: ignore[reportPrivateUsage]

    def record(self: pdf._Pages, rows: pdf.Rows, first: int, last: int, left: float) -> None:  # pyright: ignore[reportPrivateUsage]
        order.append("heading" if getattr(rows, "whole", False) else "text")
        paint(self, rows, first, last, left)

    def turned(self: pdf._Pages) -> None:  # pyright: ignore[reportPrivateUsage]
        new_pages.append(len(order))
        turn(self)

    monkeypatch.setattr(pdf._Pages, "_paint", record)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(pdf._Pages, "_new_page", turned)  # pyright: ignore[reportPrivateUsage]
    text = "\n\n".join(f"## Part {n}\n\n{'word ' * (40 + 7 * n)}" for n in range(40))
    write(chat("Q", text), tmp_path / "x.pdf")
    assert len(new_pages) > 3
    assert "heading" in order
    assert all(order[at - 1] != "heading" for at in new_pages)


def test_it_can_be_ended_between_two_steps(theme: Theme) -> None:
    steps = pdf_steps(chat("Q", "answer " * 5000))
    next(steps)
    steps.close()
    assert next(steps, None) is None


def test_thoughts_are_in_it(theme: Theme, tmp_path: Path) -> None:
    tree = ChatTree("", 0.0, 0.0, (node(1, None, Role.ASSISTANT, (ThoughtPart("hm"),)),), 1)
    assert pages(write(tree, tmp_path / "x.pdf")) == 1


def test_the_header_of_a_table_is_on_each_page(
    theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[tuple[int, int]] = []
    paint = pdf._Pages._paint  # pyright: ignore[reportPrivateUsage]

    def record(self: pdf._Pages, rows: pdf.Rows, first: int, last: int, left: float) -> None:  # pyright: ignore[reportPrivateUsage]
        if len(rows.tops) == 202:
            painted.append((first, last))
        paint(self, rows, first, last, left)

    monkeypatch.setattr(pdf._Pages, "_paint", record)  # pyright: ignore[reportPrivateUsage]
    rows = "".join(f"| {n} | b |\n" for n in range(200))
    content = write(chat("Q", f"- | Name | Value |\n  |-|-|\n{rows}".replace("\n|", "\n  |")),
                    tmp_path / "x.pdf")  # fmt: skip
    body = [each for each in painted if each != (0, 1)]
    assert [row for first, last in body for row in range(first, last)] == list(range(201))
    assert painted.count((0, 1)) == len(body) - 1 == pages(content) - 1


def test_rows_higher_than_a_page_come_to_an_end(theme: Theme, tmp_path: Path) -> None:
    cell = "word<br>" * 200
    text = f"| Name | Value |\n|-|-|\n| a | {cell} |\n| b | {cell} |\n"
    assert pages(write(chat("Q", text), tmp_path / "x.pdf")) >= 2


def test_links_can_be_clicked(theme: Theme, tmp_path: Path) -> None:
    text = "See [this](https://example.org/a?b=c) and\n\n| https://example.org/t |\n|-|\n| x |"
    content = write(chat("Q", text), tmp_path / "x.pdf")
    assert b"/URI (https://example.org/a?b=c)" in content
    assert b"/URI (https://example.org/t)" in content


def test_headings_begin_at_the_right_in_a_right_to_left_window(qapp: QApplication) -> None:
    before = qapp.layoutDirection()
    ends: list[float] = []
    for direction in (Qt.LayoutDirection.LeftToRight, Qt.LayoutDirection.RightToLeft):
        qapp.setLayoutDirection(direction)
        words = pdf._Words("Why?", QFont(), QColor("black"), 400.0)  # pyright: ignore[reportPrivateUsage]
        ends.append(words._layout.lineAt(0).naturalTextRect().right())  # pyright: ignore[reportPrivateUsage]
    qapp.setLayoutDirection(before)
    assert ends[0] < 200 < 395 < ends[1] <= 401


def test_references_to_passages_are_notes_at_the_end(theme: Theme, tmp_path: Path) -> None:
    passage = Passage(1, "manual.pdf", "The warranty is two years.", "3", PageUnit.PAGE)
    messages = (
        node(1, None, Role.USER, (PassagesPart((passage,)), TextPart("How long?"))),
        node(2, 1, Role.ASSISTANT, (TextPart("Two years [1], [see](https://a.b)."),)),
    )
    content = write(ChatTree("Title", 1.7e9, 1.7e9, messages, 2), tmp_path / "a.pdf")
    assert content.count(b"/URI (") == 1  # the address, not the number
    with closing(pypdfium2.PdfDocument(content)) as file:
        text = " ".join(re.findall(r"\w+", file[0].get_textpage().get_text_bounded()))
    assert "Answer Two years 1 see Passages 1 manual pdf page 3 The warranty is two years" in text
