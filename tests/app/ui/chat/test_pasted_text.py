"""A long paste becomes a row above the field; the whole text is sent and survives as draft."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt
from pytestqt.qtbot import QtBot

from app.domain.parts import FilePart, TextPart
from app.ui.chat.composer import Composer
from app.ui.chat.pasted_text import LONG_CHARACTERS, LONG_LINES, is_long
from fakes import MODEL
from stage import Stage

LINES = "\n".join(f"line {n}" for n in range(200))


def paste(composer: Composer, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    composer.editor.insertFromMimeData(data)


def test_long_paste_is_a_row_and_is_sent_whole(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    height = composer.height()
    paste(composer, LINES)
    qtbot.keyClicks(composer.editor, "Summarise this.")
    (row,) = composer.pasted
    assert row.words.text() == "Pasted text, 200 lines: line 0…"
    assert composer.editor.toPlainText() == "Summarise this."
    assert composer.height() < height + 60
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    stage.wait_until_idle()
    assert stage.state.messages[0].text == f"{LINES}\n\nSummarise this."
    assert composer.pasted == []
    assert composer.text() == ""


def test_paste_alone_can_be_sent(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    paste(composer, "x " * 3000)
    assert composer.button.isEnabled()
    assert "6,000 characters" in composer.pasted[0].words.text()
    qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    stage.wait_until_idle()
    assert stage.state.messages[0].text == "x " * 3000


def test_row_can_be_removed_or_shown(stage: Stage) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    paste(composer, LINES)
    paste(composer, LINES.upper())
    composer.insert("typed")
    first, second = composer.pasted
    first.remove_button.click()
    assert composer.text() == f"{LINES.upper()}\n\ntyped"
    second.show_button.click()
    assert composer.pasted == []
    assert composer.editor.toPlainText() == f"{LINES.upper()}\n\ntyped"
    assert composer.text() == f"{LINES.upper()}\n\ntyped"


def undo(composer: Composer, qtbot: QtBot) -> None:
    qtbot.keyClick(composer.editor, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)


def test_undo_takes_a_paste_back_after_what_was_typed_since(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    composer.editor.setFocus()
    qtbot.keyClicks(composer.editor, "first")
    paste(composer, LINES)
    qtbot.keyClicks(composer.editor, "typed")
    undo(composer, qtbot)
    assert composer.text() == f"{LINES}\n\nfirst"
    undo(composer, qtbot)
    assert (composer.text(), composer.pasted) == ("first", [])
    undo(composer, qtbot)
    assert composer.text() == ""


def test_undo_restores_a_removed_paste_in_its_place(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    qtbot.keyClicks(composer.editor, "typed")
    paste(composer, LINES)
    paste(composer, LINES.upper())
    before = composer.text()
    composer.pasted[0].remove_button.click()
    undo(composer, qtbot)
    assert composer.text() == before
    assert [row.text for row in composer.pasted] == [LINES, LINES.upper()]


def test_undo_folds_a_shown_paste_again(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    paste(composer, LINES)
    qtbot.keyClicks(composer.editor, "typed")
    composer.pasted[0].show_button.click()
    undo(composer, qtbot)
    assert [row.text for row in composer.pasted] == [LINES]
    assert composer.editor.toPlainText() == "typed"


def test_undo_of_a_paste_is_not_left_to_the_window(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    asked: list[bool] = []
    stage.window.undo_requested.connect(lambda: asked.append(True))
    composer.editor.setFocus()
    paste(composer, LINES)
    composer.pasted[0].remove_button.click()
    undo(composer, qtbot)
    assert (len(composer.pasted), asked) == (1, [])
    composer.set_text("")
    undo(composer, qtbot)
    assert asked == [True]


def test_pasted_text_is_kept_as_draft(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("First")
    stage.engine.finish()
    stage.wait_until_idle()
    first = stage.state.current
    assert first is not None
    composer = stage.window.composer
    paste(composer, LINES)
    composer.insert("typed")
    stage.controller.new_conversation()
    assert composer.pasted == []
    stage.wait_until_idle()
    assert stage.state.drafts[first] == (FilePart("", LINES), TextPart("typed"))
    stage.controller.open_conversation(first)
    assert [row.text for row in composer.pasted] == [LINES]
    assert composer.editor.toPlainText() == "typed"


def test_limits_of_a_long_paste() -> None:
    assert not is_long("x" * LONG_CHARACTERS)
    assert is_long("x" * (LONG_CHARACTERS + 1))
    assert not is_long("x\n" * (LONG_LINES - 1))
    assert is_long("x\n" * LONG_LINES)
