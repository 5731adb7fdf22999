"""Files that a tool returned, in the card of its call: seen while it is folded, shown and saved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QGuiApplication, QPixmap
from pytestqt.qtbot import QtBot

from app.domain.parts import ImagePart, KeptFile, TextPart, ToolResultPart, search_text
from app.domain.tool_files import shown_pictures
from app.state.pictures import PictureCopy
from app.state.tools import ToolsState
from app.ui.pictures.thumbnails import PIXELS
from app.ui.transcript.message.controls import Controls
from app.ui.transcript.message.kept_files import KeptFilesView
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.message.placed_block import PlacedBlock
from app.ui.transcript.view import Transcript
from tool_calls import call, calls_of, show, use_tools
from transcript_driver import click, wait_for_layout

CHART = KeptFile("chart.png", "a" * 64, 2_000, 400, 300)
TABLE = KeptFile("table.csv", "b" * 64, 12_000)
BROKEN = KeptFile("broken.png", "c" * 64, 900, fault="damaged")
RESULT = ToolResultPart(
    "sum", "two", "1", seconds=0.3, files=(TABLE, CHART, BROKEN), files_left_out=2
)
DONE = (TextPart("A chart.\n"), call(1), RESULT, call(2), TextPart("Done.\n"))


@pytest.fixture
def tools(view: Transcript) -> ToolsState:
    view.resize(900, 700)
    return use_tools(view)


@pytest.fixture
def mirrored() -> Iterator[None]:
    QGuiApplication.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    yield
    QGuiApplication.setLayoutDirection(Qt.LayoutDirection.LeftToRight)


def files_of(one: MessageView) -> tuple[PlacedBlock, KeptFilesView]:
    [found] = [(part, part.view) for part in one.parts if isinstance(part.view, KeptFilesView)]
    return found


def areas(one: MessageView) -> dict[str, QRectF]:
    """The areas of the files in the message."""
    part, view = files_of(one)
    return {
        view.file_of(button.name).name: button.area.translated(part.x, part.y)
        for button in view.buttons()
    }


def at(view: Transcript, point: QPointF) -> QPoint:
    layout = view.message_layout
    return (point + QPointF(layout.left_of(1), layout.message_top(1))).toPoint()


def test_a_folded_card_shows_its_pictures_and_files_and_has_its_line(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    with_files, other = (row.frame for row in one.rows)
    assert [row.folded for row in one.rows] == [True, True]
    assert with_files.bottom() < other.top()
    assert with_files.width() == one.column
    found = areas(one)
    assert found["chart.png"].bottom() < found["table.csv"].top() == found["broken.png"].top()
    assert found["table.csv"].right() < found["broken.png"].left()
    assert all(with_files.contains(area) for area in found.values())
    part, block = files_of(one)
    assert block.text(0, block.length) == (
        "broken.png is damaged or incomplete.\n"
        "2 files were not kept: there were too many, they were too large, or the disk is full."
    )
    assert part.y + block.height < with_files.bottom()
    assert calls_of(one)[0] == "Calculate, n: 1, done · 0.3 s, table.csv, chart.png, broken.png"
    click(qtbot, view, at(view, one.rows[0].area.center()))
    assert not one.rows[0].folded
    texts = [each.view.text(0, each.view.length) for each in one.parts]
    assert texts[1:3] == ["n  1", "two"]
    opened = one.rows[0].frame
    assert all(opened.contains(area) for area in areas(one).values())
    assert opened.height() > with_files.height()
    click(qtbot, view, at(view, one.rows[0].area.center()))
    assert one.rows[0].frame == with_files


def test_a_picture_is_opened_and_a_file_is_only_saved(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    one = show(view, qtbot, *DONE)
    found = areas(one)
    with qtbot.waitSignal(view.image_opened) as opened:
        click(qtbot, view, at(view, found["chart.png"].center()))
    assert opened.args == [CHART.image]
    with qtbot.waitSignal(view.kept_file_requested) as saved:
        click(qtbot, view, at(view, found["table.csv"].center()))
    assert saved.args == [TABLE]
    names = [
        c.name
        for c in Controls(view.message_layout, view.tools).of(1)
        if c.key.startswith("button ")
    ]
    assert names == [
        "Save “table.csv” (12 kB) as…",
        "chart.png, 400 × 300",
        "Save “broken.png” (1 kB) as…",
    ]
    assert shown_pictures(one.message.parts) == (CHART.image,)
    assert "table.csv" in search_text(one.message.parts)


def test_a_thumbnail_is_asked_for_when_it_is_seen_and_painted_when_it_is_there(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    asked: list[tuple[ImagePart, int]] = []
    view.thumbnails.wanted.connect(lambda *each: asked.append(each))
    one = show(view, qtbot, *DONE)
    view.grab()
    assert asked == [(CHART.image, PIXELS)]
    view.thumbnails.show(PictureCopy("a" * 64, PIXELS, 40, 30, bytes([200, 30, 30] * 1200)))
    picture = QPixmap(view.viewport().grab()).toImage()
    ratio = picture.devicePixelRatio()
    place = at(view, areas(one)["chart.png"].center()) * ratio
    assert picture.pixelColor(place) == QColor(200, 30, 30)


def test_files_begin_at_the_right_in_a_right_to_left_window(
    view: Transcript, qtbot: QtBot, tools: ToolsState, mirrored: None
) -> None:
    one = show(view, qtbot, *DONE)
    found = areas(one)
    assert found["table.csv"].left() > found["broken.png"].right()
    assert found["chart.png"].right() == found["table.csv"].right() == one.column - 12
    view.grab()


def test_chips_are_below_each_other_in_a_narrow_window_and_never_wider(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    long = KeptFile(f"{'long ' * 20}.bin", "d" * 64, 5)
    one = show(view, qtbot, call(1), ToolResultPart("sum", "", "1", files=(long, TABLE)))
    view.resize(300, 700)
    wait_for_layout(view, qtbot)
    first, second = areas(one).values()
    assert first.bottom() < second.top()
    assert first.right() <= one.column - 12
    view.grab()


def test_a_fault_of_a_later_version_harms_nothing(
    view: Transcript, qtbot: QtBot, tools: ToolsState
) -> None:
    unknown = KeptFile("a.png", "e" * 64, 5, fault="of a later version")
    one = show(view, qtbot, call(1), ToolResultPart("sum", "", "1", files=(unknown,)))
    _, block = files_of(one)
    assert [button.name for button in block.buttons()] == ["save 0"]
    assert block.length == 0
