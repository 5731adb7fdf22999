"""Pasting: files and pictures are attached, and a long text becomes a chip."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QSize, Qt, QUrl
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from app.domain.file_words import LONG_CHARACTERS, MANY_LINES, is_long
from app.domain.parts import FilePart, TextPart
from app.ui.chat.composer.composer import Composer
from fakes import MODEL
from stage import Stage, flush


def picture() -> QMimeData:
    data = QMimeData()
    image = QImage(8, 8, QImage.Format.Format_RGB32)
    image.fill(0)
    data.setImageData(image)
    return data


def file(path: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    data.setText(path.as_uri())
    return data


@pytest.mark.parametrize("kind", ["image", "png"])
def test_a_pasted_picture_is_attached(stage: Stage, kind: str) -> None:
    stage.ready(MODEL)
    pasted: list[bytes] = []
    stage.window.composer.image_pasted.connect(pasted.append)
    data = picture()
    if kind == "png":  # as browsers give it, beside the decoded one
        data.setData("image/png", b"\x89PNG\r\n\x1a\n as it is")
    editor = stage.window.composer.editor
    assert editor.canInsertFromMimeData(data)
    editor.insertFromMimeData(data)
    stage.wait_until_idle()
    assert editor.toPlainText() == ""
    assert [each.is_image for each in stage.states.attachments.of(None)] == [True]
    if kind == "png":
        assert pasted == [b"\x89PNG\r\n\x1a\n as it is"]
    else:
        assert QImage.fromData(pasted[0]).size() == QSize(8, 8)


def test_a_pasted_file_is_attached(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    (tmp_path / "notes.txt").write_text("Notes", encoding="utf-8")
    stage.window.composer.editor.insertFromMimeData(file(tmp_path / "notes.txt"))
    stage.wait_until_idle()
    assert stage.window.composer.text() == ""
    assert [each.name for each in stage.states.attachments.of(None)] == ["notes.txt"]


def test_text_with_a_picture_of_it_is_pasted_as_text(stage: Stage) -> None:
    stage.ready(MODEL)
    data = picture()  # as a spreadsheet copies cells
    data.setText("1\t2")
    stage.window.composer.editor.insertFromMimeData(data)
    assert stage.window.composer.text() == "1\t2"
    assert "paste" not in stage.state.notices


def test_pasted_web_address_is_text(stage: Stage) -> None:
    stage.ready(MODEL)
    data = QMimeData()
    data.setUrls([QUrl("https://example.org/a")])
    data.setText("https://example.org/a")
    stage.window.composer.editor.insertFromMimeData(data)
    assert stage.window.composer.text() == "https://example.org/a"


# --- a long paste becomes a chip ------------------------------------------------------------------


LINES = "\n".join(f"line {n}" for n in range(200))


def paste(composer: Composer, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    composer.editor.insertFromMimeData(data)


def texts(composer: Composer) -> list[str]:
    """The pasted texts that have chips."""
    return [part.text for part in composer.parts() if isinstance(part, FilePart)]


def show(stage: Stage) -> None:
    """Open the first pasted text, and put it into the field."""
    stage.window.composer.chips.chips[0].opened.emit()
    card = stage.window.attaching.viewer.card
    assert card is not None
    assert card.text.shown_text == texts(stage.window.composer)[0]
    card.insert_button.click()


def test_long_paste_is_a_chip_and_is_sent_whole(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    height = composer.height()
    paste(composer, LINES)
    qtbot.keyClicks(composer.editor, "Summarise this.")
    (chip,) = composer.chips.chips
    assert (chip.name.text(), chip.about.text()) == ("Pasted text", "200 lines")
    assert composer.editor.toPlainText() == "Summarise this."
    flush()
    assert composer.height() < height + 60
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    stage.wait_until_idle()
    assert stage.state.messages[0].text == f"{LINES}\n\nSummarise this."
    assert texts(composer) == []
    assert composer.text() == ""


def test_paste_alone_can_be_sent(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    paste(composer, "x " * 3000)
    assert composer.button.isEnabled()
    assert composer.chips.chips[0].about.text() == "6,000 characters"
    qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    stage.wait_until_idle()
    assert stage.state.messages[0].text == "x " * 3000


def test_row_can_be_removed_or_shown(stage: Stage) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    paste(composer, LINES)
    paste(composer, LINES.upper())
    composer.insert("typed")
    composer.chips.chips[0].remove_button.click()
    assert composer.text() == f"{LINES.upper()}\n\ntyped"
    show(stage)
    assert texts(composer) == []
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
    assert (composer.text(), texts(composer)) == ("first", [])
    undo(composer, qtbot)
    assert composer.text() == ""


def test_undo_restores_a_removed_paste_in_its_place(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    qtbot.keyClicks(composer.editor, "typed")
    paste(composer, LINES)
    paste(composer, LINES.upper())
    before = composer.text()
    composer.chips.chips[0].remove_button.click()
    undo(composer, qtbot)
    assert composer.text() == before
    assert texts(composer) == [LINES, LINES.upper()]


def test_undo_folds_a_shown_paste_again(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    paste(composer, LINES)
    qtbot.keyClicks(composer.editor, "typed")
    show(stage)
    undo(composer, qtbot)
    assert texts(composer) == [LINES]
    assert composer.editor.toPlainText() == "typed"


def test_undo_of_a_paste_is_not_left_to_the_window(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    asked: list[bool] = []
    stage.window.undo_requested.connect(lambda: asked.append(True))
    composer.editor.setFocus()
    paste(composer, LINES)
    composer.chips.chips[0].remove_button.click()
    undo(composer, qtbot)
    assert (len(texts(composer)), asked) == (1, [])
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
    assert texts(composer) == []
    stage.wait_until_idle()
    assert stage.state.drafts[first] == (FilePart("", LINES), TextPart("typed"))
    stage.controller.open_conversation(first)
    assert texts(composer) == [LINES]
    assert composer.editor.toPlainText() == "typed"


def test_limits_of_a_long_paste() -> None:
    assert not is_long("x" * LONG_CHARACTERS)
    assert is_long("x" * (LONG_CHARACTERS + 1))
    assert not is_long("x\n" * (MANY_LINES - 1))
    assert is_long("x\n" * MANY_LINES)
