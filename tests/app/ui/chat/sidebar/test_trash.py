"""Trash page: restoring, deleting now, and emptying after a question."""

from __future__ import annotations

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.ui.chat.sidebar.trash import TrashPage
from stage import Stage, flush

LEFT = Qt.MouseButton.LeftButton


def open_trash(qtbot: QtBot, stage: Stage, *titles: str) -> TrashPage:
    """Delete one conversation per title, and open the trash."""
    stage.start()
    stage.window.activateWindow()
    assert stage.window.sidebar.trash_button.isHidden()
    for title in titles:
        stage.controller.new_conversation()
        stage.controller.send(title)
        stage.controller.stop()
        stage.wait_until_idle()
        stage.controller.deletions.delete([stage.state.conversations[0].id])
    stage.wait_until_idle()
    qtbot.mouseClick(stage.window.sidebar.trash_button, LEFT)
    flush()
    page = stage.window.trash.page
    assert page is not None
    assert page.isVisible()
    return page


def test_a_row_names_the_day_of_removal_and_enter_restores_it(qtbot: QtBot, stage: Stage) -> None:
    page = open_trash(qtbot, stage, "One", "Two")
    rows = [page.list.item(row).text() for row in range(page.list.count())]
    assert [row.splitlines()[0] for row in rows] == ["Two", "One"]
    assert all("Will be removed on" in row for row in rows)
    assert page.list.hasFocus()
    qtbot.keyClick(page.list, Qt.Key.Key_Down)
    qtbot.keyClick(page.list, Qt.Key.Key_Return)
    stage.wait_until_idle()
    assert [c.title for c in stage.state.conversations] == ["One"]
    assert [c.title for c in stage.state.trash] == ["Two"]
    assert stage.window.chat.isVisible()


def test_deleting_now_asks_first(qtbot: QtBot, stage: Stage) -> None:
    page = open_trash(qtbot, stage, "One", "Two")
    qtbot.keyClick(page.list, Qt.Key.Key_Delete)
    assert page.confirm.remove_button.text() == "Delete 1 chat"
    assert page.confirm.keep_button.hasFocus()
    qtbot.keyClick(page.confirm.keep_button, Qt.Key.Key_Space)
    assert page.confirm.isHidden()
    assert page.list.hasFocus()
    assert len(stage.state.trash) == 2
    qtbot.mouseClick(page.remove_button, LEFT)
    qtbot.mouseClick(page.confirm.remove_button, LEFT)
    stage.wait_until_idle()
    assert [c.title for c in stage.state.trash] == ["One"]


def test_emptying_removes_all_after_a_question(qtbot: QtBot, stage: Stage) -> None:
    page = open_trash(qtbot, stage, "One", "Two")
    qtbot.mouseClick(page.empty_button, LEFT)
    assert page.confirm.remove_button.text() == "Delete 2 chats"
    assert len(stage.state.trash) == 2
    qtbot.mouseClick(page.confirm.remove_button, LEFT)
    stage.wait_until_idle()
    assert stage.state.trash == ()
    assert not page.nothing.isHidden()
    flush()  # laid out again
    assert page.nothing.y() < 200  # below the buttons, not spread over the page
    assert not page.restore_button.isEnabled()
    assert stage.window.sidebar.trash_button.isHidden()
    assert page.close_button.hasFocus()
    qtbot.keyClick(page.close_button, Qt.Key.Key_Escape)
    assert stage.window.chat.isVisible()
