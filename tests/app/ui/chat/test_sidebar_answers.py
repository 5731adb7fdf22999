"""Sidebar: rows of conversations that are answered, and stopping their answers from there."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from pytestqt.qtbot import QtBot

from app.ui.chat.sidebar_list import BUSY_ROLE, WRITING_ROLE, stop_rect
from engine import FinishReason
from fakes import MODEL, Cancel
from stage import Stage


@pytest.fixture
def answering(stage: Stage) -> tuple[Stage, int, int]:
    """One conversation is being answered, and another, which is shown, waits for its answer."""
    stage.ready(MODEL)
    numbers: list[int] = []
    for text in ("First", "Second"):
        stage.controller.new_conversation()
        stage.controller.send(text)
        assert stage.state.current is not None
        numbers.append(stage.state.current)
    stage.engine.write("Because", request=stage.engine.unfinished[0].request)
    stage.wait_until_idle()
    return stage, numbers[0], numbers[1]


def test_rows_show_which_answers_are_written_and_which_wait(
    answering: tuple[Stage, int, int],
) -> None:
    stage, first, second = answering
    model = stage.window.sidebar.model
    shown = {
        number: (model.find(number).data(BUSY_ROLE), model.find(number).data(WRITING_ROLE))
        for number in (first, second)
    }
    assert shown == {first: (True, True), second: (True, False)}
    spoken = Qt.ItemDataRole.AccessibleTextRole
    assert "an answer is being written" in model.find(first).data(spoken)
    assert "an answer is waiting" in model.find(second).data(spoken)


def test_dot_is_filled_while_writing_and_a_ring_while_waiting(
    answering: tuple[Stage, int, int],
) -> None:
    stage, first, second = answering
    view = stage.window.sidebar.list
    picture = view.viewport().grab().toImage()
    accent = stage.theme.palette.accent.lower()

    def middle(number: int) -> str:
        row = view.visualRect(stage.window.sidebar.model.find(number))
        return picture.pixelColor(row.right() - 24 - 3, row.center().y()).name()

    assert middle(first) == accent
    assert middle(second) != accent


def test_stop_icon_stops_its_row_without_opening_it(
    qtbot: QtBot, answering: tuple[Stage, int, int]
) -> None:
    stage, first, second = answering
    view = stage.window.sidebar.list
    requests = [each.request for each in stage.engine.unfinished]
    place = stop_rect(view.visualRect(stage.window.sidebar.model.find(first))).center()
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert stage.engine.last(Cancel) == Cancel(requests[0])
    assert stage.state.current == second
    stage.engine.finish(FinishReason.CANCELLED, request=requests[0])
    stage.drain()
    assert stage.state.busy_conversations == {second}
    with qtbot.waitSignal(stage.window.sidebar.opened, timeout=1000):  # no icon there any more
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)


def test_menu_of_selected_rows_stops_their_answers(answering: tuple[Stage, int, int]) -> None:
    stage, first, second = answering
    view, model = stage.window.sidebar.list, stage.window.sidebar.model
    for number in (first, second):
        select = QItemSelectionModel.SelectionFlag.Select
        view.selectionModel().select(model.find(number), select)
    menu = view.row_menu(model.find(first))
    texts = [each.text() for each in menu.actions()]
    assert (texts[0], texts[-1]) == ("Stop 2 answers", "Delete 2 chats")
    menu.actions()[0].trigger()
    assert stage.engine.count(Cancel) == 2
    assert stage.state.busy_conversations == {first}, "the waiting one has ended at once"


def test_menu_of_a_quiet_row_has_no_stop(answering: tuple[Stage, int, int]) -> None:
    stage, _, second = answering
    stage.controller.stop()
    view, model = stage.window.sidebar.list, stage.window.sidebar.model
    menu = view.row_menu(model.find(second))
    texts = [each.text() for each in menu.actions() if not each.isSeparator()]
    assert texts == [
        *("Rename", "Pin", "Move to", "Archive", "Duplicate"),
        *("Export", "Copy whole chat", "Delete"),
    ]
