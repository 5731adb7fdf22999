"""Find bar: opens by key, shows the number of matches, steps by Enter, and closes by Esc."""

from __future__ import annotations

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from fakes import MODEL
from stage import Stage

KEY, SHIFT = Qt.Key, Qt.KeyboardModifier.ShiftModifier


def chat(stage: Stage, answer: str = "Tea is a drink. Green tea is tea.") -> None:
    stage.ready(MODEL)
    stage.window.activateWindow()
    stage.controller.send("What is tea?")
    stage.engine.write(answer)
    stage.engine.finish()
    stage.wait_until_idle()


def count(stage: Stage) -> str:
    return stage.window.chat.find_bar.count.text()


def test_matches_are_counted_and_stepped_through(stage: Stage, qtbot: QtBot) -> None:
    chat(stage)
    bar = stage.window.chat.find_bar
    assert bar.isHidden()
    stage.window.actions_by_id["find"].trigger()
    assert bar.isVisible()
    assert bar.field.hasFocus()
    qtbot.keyClicks(bar.field, "TEA")
    assert count(stage) == "1 of 4"
    qtbot.keyClick(bar.field, KEY.Key_Return)
    assert count(stage) == "2 of 4"
    qtbot.keyClick(bar.field, KEY.Key_Return, SHIFT)
    qtbot.keyClick(bar.field, KEY.Key_Return, SHIFT)
    assert count(stage) == "4 of 4"
    bar.next_button.click()
    assert count(stage) == "1 of 4"
    qtbot.keyClicks(bar.field, "!")
    assert count(stage) == "Not found"
    assert not bar.next_button.isEnabled()
    bar.field.clear()
    assert not count(stage)


def test_esc_closes_the_bar_and_selects_the_match(stage: Stage, qtbot: QtBot) -> None:
    chat(stage)
    page = stage.window.chat
    stage.window.open_find()
    qtbot.keyClicks(page.find_bar.field, "green")
    qtbot.keyClick(page.find_bar.field, KEY.Key_Escape)
    assert page.find_bar.isHidden()
    assert page.transcript.selected_text() == "Green"
    assert page.transcript.hasFocus()
    assert page.transcript.finder.total == 0
    stage.window.open_find()
    assert page.find_bar.field.text() == "Green"  # the selection
    assert count(stage) == "1 of 1"


def test_another_conversation_closes_the_bar(stage: Stage, qtbot: QtBot) -> None:
    chat(stage)
    stage.window.open_find()
    qtbot.keyClicks(stage.window.chat.find_bar.field, "tea")
    stage.controller.new_conversation()
    assert stage.window.chat.find_bar.isHidden()
    assert stage.window.composer.editor.hasFocus()
    stage.window.open_find()  # nothing to find in an empty chat
    assert stage.window.chat.find_bar.isHidden()
    assert stage.window.sidebar.search.hasFocus()


def test_find_next_opens_the_bar(stage: Stage, qtbot: QtBot) -> None:
    chat(stage)
    bar = stage.window.chat.find_bar
    stage.window.actions_by_id["find_next"].trigger()
    assert bar.isVisible()
    qtbot.keyClicks(bar.field, "tea")
    stage.window.actions_by_id["find_next"].trigger()
    assert count(stage) == "2 of 4"
    stage.window.actions_by_id["find_previous"].trigger()
    assert count(stage) == "1 of 4"


def test_separate_words_are_explained(stage: Stage, qtbot: QtBot) -> None:
    chat(stage)
    bar = stage.window.chat.find_bar
    stage.window.open_find()
    qtbot.keyClicks(bar.field, "drink green")
    assert count(stage) == "1 of 2"
    assert "found on its own" in bar.count.toolTip()
