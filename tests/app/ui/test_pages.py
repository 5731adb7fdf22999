"""Library and settings pages: opening, returning to the conversation, shared notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.ui.theme.theme import HEADING, font
from app.ui.widgets.page import Page
from engine import Chat
from fakes import MODEL
from stage import Stage


@pytest.fixture
def talk(stage: Stage) -> Stage:
    """A conversation with one answer."""
    stage.ready(MODEL)
    stage.window.composer.submitted.emit("Why is the sky blue?")
    stage.engine.write("Because of the air.")
    stage.engine.finish()
    stage.wait_until_idle()
    return stage


@pytest.mark.parametrize("page", ["library", "settings"])
def test_choosing_the_current_conversation_closes_the_page(
    qtbot: QtBot, talk: Stage, page: str
) -> None:
    window = talk.window
    (conversation,) = talk.state.conversations
    assert conversation.id == talk.state.current
    window.actions_by_id[page].trigger()
    assert not window.chat.isVisible()
    chats = window.sidebar.list
    place = chats.visualRect(chats.model().index(1, 0)).center()
    qtbot.mouseClick(chats.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert window.chat.isVisible()


def test_the_titles_of_all_pages_look_alike(stage: Stage) -> None:
    window = stage.window
    pages = ("trash", "archive", "performance", "connections", "collections", "activity")
    for page in (*pages, "library", "preferences", "presets"):
        getattr(window, page).open()
    fonts = {
        page.accessibleName(): title.font()
        for page in window.findChildren(Page)
        for title in page.findChildren(QLabel)
        if title.text() == page.accessibleName()
    }
    assert len(fonts) == 9
    assert set(fonts.values()) == {font(HEADING, QFont.Weight.DemiBold)}


@pytest.mark.parametrize("page", ["library", "settings"])
def test_hidden_answer_is_not_regenerated(talk: Stage, page: str) -> None:
    window = talk.window
    window.actions_by_id[page].trigger()
    window.actions_by_id["regenerate"].trigger()
    talk.wait_until_idle()
    assert talk.engine.count(Chat) == 1
    window.close_page()
    window.actions_by_id["regenerate"].trigger()
    talk.wait_until_idle()
    assert talk.engine.count(Chat) == 2


@pytest.mark.parametrize("page", ["library", "settings"])
def test_notices_are_shown_on_every_page(talk: Stage, page: str) -> None:
    talk.window.actions_by_id[page].trigger()
    talk.controller.load_model(Path("/models/other.gguf"))
    talk.engine.fail_load("The file is cut short.", "Download it again.", model_gone=False)
    talk.wait_until_idle()
    words = [
        each.text()
        for each in talk.window.findChildren(QLabel)
        if each.isVisible() and "cut short" in each.text()
    ]
    assert words == ["The file is cut short. Download it again."]
