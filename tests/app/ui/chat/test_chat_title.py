"""The title in the top bar: it is edited in place, by mouse and keyboard."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.ui.chat.chat_title import ChatTitle
from fakes import MODEL
from stage import Stage


@pytest.fixture
def title(stage: Stage) -> ChatTitle:
    stage.ready(MODEL)
    stage.controller.send("Green tea & black tea")
    stage.engine.finish()
    stage.wait_until_idle()
    return stage.window.top_bar.title


def shown(stage: Stage) -> str:
    return stage.state.title(stage.state.current)


def test_a_double_click_selects_the_title_and_enter_renames(
    qtbot: QtBot, stage: Stage, title: ChatTitle
) -> None:
    assert title.button.text() == "Green tea && black tea"
    assert title.button.accessibleName() == "Chat: Green tea & black tea"
    qtbot.mouseClick(title.button, Qt.MouseButton.LeftButton)
    qtbot.mouseDClick(title.field, Qt.MouseButton.LeftButton)
    assert title.field.selectedText() == "Green tea & black tea"
    qtbot.keyClicks(title.field, "About tea")
    qtbot.keyClick(title.field, Qt.Key.Key_Return)
    assert shown(stage) == "About tea"
    assert title.button.text() == "About tea"
    assert title.field.isHidden()
    stage.wait_until_idle()
    assert stage.window.windowTitle().startswith("About tea")


def test_escape_and_an_empty_title_change_nothing(
    qtbot: QtBot, stage: Stage, title: ChatTitle
) -> None:
    for text, key in (("Other", Qt.Key.Key_Escape), (" ", Qt.Key.Key_Return)):
        title.edit()
        qtbot.keyClicks(title.field, text)
        qtbot.keyClick(title.field, key)
        assert title.field.isHidden()
        assert shown(stage) == "Green tea & black tea"
    assert stage.window.composer.text() == ""


def test_f2_edits_it_without_the_sidebar(qtbot: QtBot, stage: Stage, title: ChatTitle) -> None:
    stage.window.set_sidebar(False)
    stage.window.rename_chat()
    assert stage.window.sidebar.isHidden()
    assert title.field.hasFocus()
    qtbot.keyClicks(title.field, "Tea")
    stage.controller.new_conversation()  # leaving the chat keeps what was typed
    assert [chat.title for chat in stage.state.conversations] == ["Tea"]
    assert title.isHidden()


def test_other_pages_and_new_chats_show_no_title(stage: Stage, title: ChatTitle) -> None:
    assert title.isVisible()
    stage.window.library.open()
    assert title.isHidden()
    stage.window.close_page()
    assert title.isVisible()
    stage.controller.new_conversation()
    assert title.isHidden()


def test_a_long_title_leaves_room_for_the_buttons(stage: Stage, title: ChatTitle) -> None:
    stage.controller.conversations.rename(stage.state.conversations[0].id, "tea " * 100)
    for width in (420, 1080):
        stage.window.resize(width, 700)
        stage.window.layout().activate()
        keys = stage.window.top_bar.keys_button
        assert keys.isVisible()
        assert keys.geometry().right() < stage.window.top_bar.width()
        assert title.button.isHidden() or "…" in title.button.text()
        model = stage.window.top_bar.model_button
        assert model.width() >= min(model.sizeHint().width(), 150)
