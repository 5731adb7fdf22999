"""Table view: columns from left to right, or from right to left by the first letters."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRectF
from pytestqt.qtbot import QtBot

from app.markdown.blocks import Table
from app.markdown.stream import Stream, parse
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.table import TableView
from app.ui.theme.palette import LIGHT

ARABIC = "| الاسم | العمر | المدينة |\n|---|--:|:-:|\n| علي | 30 | https://a.b/c |\n"
ENGLISH = "| name | age | town |\n|---|--:|:-:|\n| Ali | 30 | https://a.b/c |\n"


def table_of(text: str, width: float = 600.0) -> TableView:
    (block,) = parse(text)
    assert isinstance(block, Table)
    view = TableView(block, ReadingStyle(LIGHT))
    view.layout(width)
    return view


def cells(view: TableView) -> list[QRectF]:
    """The area of the text of each cell that has one line."""
    found: list[QRectF] = []
    at = 0
    for cell in view.text(0, view.length).replace("\n", "\t").split("\t"):
        area = QRectF()
        for each in view.areas(at, at + len(cell)):
            area = area.united(each)
        found.append(area)
        at += len(cell) + 1
    return found


@pytest.mark.parametrize("text", [ARABIC, ENGLISH])
def test_the_first_column_is_where_lines_begin(qtbot: QtBot, text: str) -> None:
    view = table_of(text)
    first, second, third, ali, age, town = cells(view)
    if text == ARABIC:
        assert first.left() > second.right() > second.left() > third.right()
        assert first.right() == pytest.approx(600.0, abs=2.0)
        assert ali.right() == pytest.approx(first.right(), abs=2.0)
    else:
        assert first.right() < second.left() < second.right() < third.left()
        assert first.left() == pytest.approx(0.0, abs=2.0)
    assert age.right() == pytest.approx(second.right(), abs=2.0)
    assert town.center().x() == pytest.approx(third.center().x(), abs=2.0)


@pytest.mark.parametrize("text", [ARABIC, ENGLISH])
def test_points_are_found_in_the_cells_where_they_are_shown(qtbot: QtBot, text: str) -> None:
    view = table_of(text)
    starts = [0]
    for cell in view.text(0, view.length).replace("\n", "\t").split("\t"):
        starts.append(starts[-1] + len(cell) + 1)
    for number, area in enumerate(cells(view)):
        center = area.center()
        assert starts[number] <= view.hit(center.x(), center.y()) < starts[number + 1]
        assert view.over_text(center.x(), center.y())
    (link,) = view.links()
    assert link.area.center().x() == pytest.approx(cells(view)[-1].center().x(), abs=2.0)
    assert view.link_at(link.area.center().x(), link.area.center().y()) == "https://a.b/c"


def test_a_wide_table_from_right_to_left_begins_scrolled_to_its_first_column(qtbot: QtBot) -> None:
    names = " | ".join(f"عمود{number}" for number in range(30))
    view = table_of(f"| {names} |\n{'|---' * 30}|\n", 400.0)
    scroll = view.horizontal_scroll
    assert scroll.overflows
    assert scroll.offset == scroll.content_width - scroll.viewport_width
    assert cells(view)[0].right() == pytest.approx(400.0, abs=2.0)
    view.layout(300.0)
    assert cells(view)[0].right() == pytest.approx(300.0, abs=2.0)


def test_a_streamed_table_takes_its_direction_from_its_first_letters(qtbot: QtBot) -> None:
    stream = Stream()
    stream.feed("| 1 | 2 |\n|---|---|\n")
    (block,) = stream.blocks
    view = TableView(block, ReadingStyle(LIGHT))  # type: ignore[arg-type]
    view.layout(400.0)
    assert not view.right_to_left
    stream.feed("| سنة | شهر |\n")
    assert not view.update(stream.blocks[0])
    assert TableView(stream.blocks[0], ReadingStyle(LIGHT)).right_to_left  # type: ignore[arg-type]
