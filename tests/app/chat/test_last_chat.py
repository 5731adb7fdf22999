"""The last shown chat and the window's place come back, also after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.settings.table import Settings, load
from fakes import MODEL
from stage import Stage, flush, until


def ask(stage: Stage, text: str) -> None:
    stage.controller.send(text)
    stage.engine.write("Yes.")
    stage.engine.finish()
    stage.wait_until_idle()


def again(folder: Path) -> Stage:
    """A second start in the same folder."""
    stage = Stage(folder, settings=load(folder / "settings.json"))
    stage.start()
    return stage


def test_last_chat_opens_at_the_next_start(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    ask(stage, "One?")
    one = stage.state.current
    stage.controller.new_conversation()
    ask(stage, "Two?")
    assert one is not None
    stage.controller.open_conversation(one)
    stage.wait_until_idle()
    until(lambda: load(tmp_path / "settings.json").last_conversation > 0)
    stage.close()
    stage = again(tmp_path)
    try:
        until(lambda: bool(stage.state.messages))
        assert stage.state.messages[0].text == "One?"
        stage.controller.new_conversation()
        stage.wait_until_idle()
    finally:
        stage.close()
    stage = again(tmp_path)
    try:
        assert stage.state.current is None  # the new chat was shown last
    finally:
        stage.close()


def test_deleted_last_chat_leads_to_the_empty_page(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    ask(stage, "One?")
    stage.close()
    stage = Stage(tmp_path, settings=Settings(last_conversation=77))
    try:
        stage.start()
        assert stage.state.conversations
        assert stage.state.current is None
    finally:
        stage.close()


def test_chat_begun_before_the_list_is_read_stays(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    ask(stage, "One?")
    stage.close()
    stage = Stage(tmp_path, settings=load(tmp_path / "settings.json"))
    try:
        assert stage.controller.settings.last_conversation
        stage.window.show()
        stage.controller.start(MODEL)
        stage.controller.send("At once")
        stage.wait_until_idle()
        assert stage.state.messages[0].text == "At once"
    finally:
        stage.close()


def test_place_of_the_window_is_saved_without_quitting(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    try:
        stage.start()
        flush()
        stage.window.resize(640, 600)
        until(lambda: load(tmp_path / "settings.json").window_geometry != "")
        saved = load(tmp_path / "settings.json").window_geometry
        stage.window.resize(760, 700)
        stage.window.placement.restore(saved)
        assert (stage.window.width(), stage.window.height()) == (640, 600)
    finally:
        stage.close()


@pytest.mark.parametrize("composed", [False, True])
def test_last_chat_does_not_open_while_the_user_writes(
    qtbot: QtBot, tmp_path: Path, composed: bool
) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    ask(stage, "One?")
    until(lambda: load(tmp_path / "settings.json").last_conversation > 0)
    stage.close()
    stage = Stage(tmp_path, settings=load(tmp_path / "settings.json"))
    try:
        editor = stage.window.composer.editor

        def write() -> None:
            if composed:
                QApplication.sendEvent(editor, QInputMethodEvent("か", []))
            else:
                qtbot.keyClicks(editor, "Half a ")

        # The last chat is being read from the store then.
        stage.state.conversations_changed.connect(write, Qt.ConnectionType.SingleShotConnection)
        stage.start()
        assert stage.state.current is None
        assert editor.composing == composed
        qtbot.keyClicks(editor, "thought")
        assert stage.window.composer.text() == ("" if composed else "Half a ") + "thought"
    finally:
        stage.close()


def test_last_chat_takes_no_focus_from_a_search(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    ask(stage, "One?")
    until(lambda: load(tmp_path / "settings.json").last_conversation > 0)
    stage.close()
    stage = Stage(tmp_path, settings=load(tmp_path / "settings.json"))
    try:
        stage.window.show()
        stage.window.activateWindow()
        stage.window.search()
        stage.controller.start()
        until(lambda: bool(stage.state.messages))
        assert stage.window.sidebar.search.hasFocus()
    finally:
        stage.close()
