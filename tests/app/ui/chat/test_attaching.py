"""Attached files in the window: the keyboard reaches them, Undo, editing, and rows of sent files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from app.domain.documents import Reads
from app.domain.parts import FilePart, TextPart, files
from app.state.attachments import Editing, KnownFile
from app.ui.transcript.message.message_editor import MessageEditor
from fakes import MODEL
from plain_extractor import PlainExtractor
from stage import Stage, flush, until


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "data").mkdir()
    made = Stage(tmp_path / "data", extractor=PlainExtractor())
    made.ready(MODEL)
    yield made
    made.close()


def attach(stage: Stage, tmp_path: Path, *names: str) -> list[Path]:
    """Attach text files, as the dialog does."""
    paths: list[Path] = []
    for name in names:
        path = tmp_path / name
        path.write_text(f"The text of {name}.\n", encoding="utf-8")
        paths.append(path)
    stage.window.attaching.attached.emit(paths)
    place = stage.state.current
    until(lambda: all(each.part for each in stage.states.attachments.of(place)))
    stage.wait_until_idle()
    return paths


def chips(stage: Stage) -> list[str]:
    return [chip.name.text() for chip in stage.window.composer.chips.chips]


def undo(stage: Stage, qtbot: QtBot, widget: QWidget) -> None:
    qtbot.keyClick(widget, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)


def test_the_button_opens_a_dialog_for_several_files(
    stage: Stage, qtbot: QtBot, tmp_path: Path
) -> None:
    stage.window.composer.insert("typed before")
    stage.window.composer.attach_button.click()
    assert stage.state.messages == ()  # it sends nothing
    dialog = stage.window.findChild(QFileDialog)
    assert dialog is not None
    assert dialog.fileMode() is QFileDialog.FileMode.ExistingFiles
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    dialog.filesSelected.emit([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    dialog.close()
    until(lambda: len(chips(stage)) == 2)
    assert chips(stage) == ["a.txt", "b.txt"]


def test_a_folder_has_a_dialog_of_its_own(stage: Stage, tmp_path: Path) -> None:
    stage.window.actions_by_id["attach_folder"].trigger()
    dialog = stage.window.findChild(QFileDialog)
    assert dialog is not None
    assert dialog.fileMode() is QFileDialog.FileMode.Directory
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x", encoding="utf-8")
    dialog.filesSelected.emit([str(tmp_path / "notes")])
    dialog.close()
    until(lambda: chips(stage) == ["a.txt"])


def test_pasted_files_are_attached(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x", encoding="utf-8")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    stage.window.composer.editor.insertFromMimeData(data)
    until(lambda: chips(stage) == ["a.txt"])


def test_a_drop_on_the_field_is_the_drop_on_the_window(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x", encoding="utf-8")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    where, action = QPointF(5, 5), Qt.DropAction.CopyAction
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    over = QDragEnterEvent(where.toPoint(), action, data, buttons, keys)
    QApplication.sendEvent(stage.window.composer.editor.viewport(), over)
    assert over.isAccepted()
    assert stage.window.drop_area.sentence() == "Drop to attach a.txt"
    QApplication.sendEvent(stage.window, QDropEvent(where, action, data, buttons, keys))
    assert not stage.window.drop_area.isVisible()
    until(lambda: chips(stage) == ["a.txt"])


def test_files_stay_while_the_settings_are_open(stage: Stage, tmp_path: Path) -> None:
    attach(stage, tmp_path, "a.txt")
    stage.window.preferences.open()
    stage.window.close_page()
    assert chips(stage) == ["a.txt"]


def test_a_drop_on_the_settings_shows_the_chat(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x", encoding="utf-8")
    stage.window.preferences.open()
    stage.window.drops.files_dropped.emit([path])
    assert stage.window.chat.isVisible()
    until(lambda: chips(stage) == ["a.txt"])


def test_tab_goes_from_the_chips_to_the_field(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    attach(stage, tmp_path, "a.txt", "b.txt")
    composer = stage.window.composer
    first = composer.chips.chips[0]
    first.setFocus()
    found: list[QWidget | None] = []
    for _ in range(4):
        focus = stage.window.focusWidget()
        assert focus is not None
        qtbot.keyClick(focus, Qt.Key.Key_Tab)
        found.append(stage.window.focusWidget())
    assert found == [first.remove_button, composer.attach_button, composer.editor, composer.button]


def test_tab_goes_from_the_chat_to_the_chips(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    attach(stage, tmp_path, "a.txt")
    composer = stage.window.composer
    stops: list[QWidget | None] = []
    composer.setFocus()
    for _ in range(40):
        focus = stage.window.focusWidget()
        assert focus is not None
        qtbot.keyClick(focus, Qt.Key.Key_Tab)
        stops.append(stage.window.focusWidget())
    chip = composer.chips.chips[0]
    at = stops.index(composer.attach_button)
    assert stops[at - 2 : at + 2] == [
        chip, chip.remove_button, composer.attach_button, composer.editor
    ]  # fmt: skip


def test_undo_brings_a_removed_file_back_to_its_place(
    stage: Stage, qtbot: QtBot, tmp_path: Path
) -> None:
    attach(stage, tmp_path, "a.txt", "b.txt", "c.txt")
    composer = stage.window.composer
    composer.setFocus()
    composer.chips.chips[1].remove_button.click()
    assert chips(stage) == ["a.txt", "c.txt"]
    undo(stage, qtbot, composer.editor)
    assert chips(stage) == ["a.txt", "b.txt", "c.txt"]
    composer.chips.chips[0].setFocus()
    qtbot.keyClick(composer.chips.chips[0], Qt.Key.Key_Delete)
    undo(stage, qtbot, composer.chips.chips[0])
    assert chips(stage) == ["a.txt", "b.txt", "c.txt"]


def test_files_alone_can_be_sent(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    attach(stage, tmp_path, "a.txt")
    composer = stage.window.composer
    assert composer.button.isEnabled()
    qtbot.keyClick(composer.editor, Qt.Key.Key_Return)
    stage.wait_until_idle()
    (sent,) = files(stage.state.messages[0].parts)
    assert (sent.name, sent.text) == ("a.txt", "The text of a.txt.\n")
    assert chips(stage) == []


def sent(stage: Stage, tmp_path: Path, *names: str) -> int:
    """Send a question with files; returns the message."""
    attach(stage, tmp_path, *names)
    stage.window.composer.insert("What is it?")
    stage.window.composer.button.click()
    stage.engine.finish()
    stage.wait_until_idle()
    return stage.state.messages[0].id


def test_the_row_of_a_sent_file_opens_its_text(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    sent(stage, tmp_path, "a.txt")
    transcript = stage.window.transcript
    view = transcript.stack.views[0]
    (row,) = view.rows
    assert (row.words, row.usable) == ("a.txt, 19 characters", True)
    layout = transcript.message_layout
    point = row.area.center().toPoint()
    point += layout.local(0, type(row.area.center())(0, 0)).toPoint() * -1
    qtbot.mouseClick(transcript.viewport(), Qt.MouseButton.LeftButton, pos=point)
    card = stage.window.attaching.viewer.card
    assert card is not None
    assert card.text.text() == '<document name="a.txt">\nThe text of a.txt.\n</document>'
    (popover,) = stage.window.attaching.popovers
    qtbot.keyClick(card.text, Qt.Key.Key_Escape)
    assert not popover.isVisible()


def test_the_keyboard_opens_the_text_of_a_sent_file(
    stage: Stage, qtbot: QtBot, tmp_path: Path
) -> None:
    sent(stage, tmp_path, "a.txt")
    transcript = stage.window.transcript
    transcript.setFocus()
    transcript.keys.enter(backwards=False)
    qtbot.keyClick(transcript, Qt.Key.Key_Up)
    qtbot.keyClick(transcript, Qt.Key.Key_Return)
    assert stage.window.attaching.popovers[0].isVisible()
    control = transcript.access.controls.of(0)[0]
    assert (control.name, control.description) == (
        "a.txt, 19 characters, text",
        "Shows the text of the file",
    )


def test_find_marks_the_row_of_a_file_and_finds_on_in_its_text(
    stage: Stage, qtbot: QtBot, tmp_path: Path
) -> None:
    sent(stage, tmp_path, "a.txt", "b.txt")
    transcript, bar = stage.window.transcript, stage.window.chat.find_bar
    stage.window.chat.open_find()
    bar.field.setText("Text of B")
    until(lambda: not transcript.finder.searching)
    (match,), current = transcript.finder.in_message(stage.state.messages[0].id)
    assert (match.row, match.in_file, current) == (1, True, match)
    assert bar.count.text() == "1 of 1"
    transcript.message_layout.use_row(0, 1)
    card = stage.window.attaching.viewer.card
    assert card is not None
    assert card.search.field.text() == "Text of B"
    until(lambda: not card.search.searching)
    assert card.search.count.text() == "1 of 1"


def test_the_menu_of_a_row_shows_the_file_in_its_folder(
    stage: Stage, qtbot: QtBot, tmp_path: Path
) -> None:
    sent(stage, tmp_path, "a.txt")
    asked: list[Path] = []
    stage.window.attaching.folder_requested.disconnect()
    stage.window.attaching.folder_requested.connect(asked.append)
    stage.window.transcript.folder_requested.emit(tmp_path / "a.txt")
    assert asked == [tmp_path / "a.txt"]


def test_files_of_an_edited_message_are_chips(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    message = sent(stage, tmp_path, "a.txt", "b.txt")
    transcript = stage.window.transcript
    transcript.edit_message(message)
    editor = transcript.editing.editor
    assert isinstance(editor, MessageEditor)
    assert [chip.name.text() for chip in editor.chips.chips] == ["a.txt", "b.txt"]
    field = stage.window.focusWidget()
    assert field is not None
    qtbot.keyClicks(field, "!")
    editor.chips.chips[0].remove_button.click()
    undo(stage, qtbot, field)
    assert [chip.name.text() for chip in editor.chips.chips] == ["a.txt", "b.txt"]
    undo(stage, qtbot, editor.chips.chips[1])  # what was typed before
    assert editor.text() == "What is it?"
    editor.chips.chips[0].remove_button.click()
    assert [chip.name.text() for chip in editor.chips.chips] == ["b.txt"]
    (tmp_path / "c.txt").write_text("New\n", encoding="utf-8")
    transcript.editing.files_pasted.emit(message, [tmp_path / "c.txt"])
    place = Editing(message)
    until(lambda: len(stage.states.attachments.of(place)) == 2)
    until(lambda: all(each.part for each in stage.states.attachments.of(place)))
    assert [chip.name.text() for chip in editor.chips.chips] == ["b.txt", "c.txt"]
    editor.submitted.emit(editor.parts())
    stage.wait_until_idle()
    parts = stage.state.messages[0].parts
    assert [part.name for part in files(parts)] == ["b.txt", "c.txt"]
    assert parts[-1] == TextPart("What is it?")


def test_a_cancelled_edit_keeps_the_files(stage: Stage, tmp_path: Path) -> None:
    message = sent(stage, tmp_path, "a.txt")
    transcript = stage.window.transcript
    transcript.edit_message(message)
    editor = transcript.editing.editor
    assert isinstance(editor, MessageEditor)
    editor.chips.chips[0].remove_button.click()
    editor.cancelled.emit()
    assert stage.states.attachments.of(Editing(message)) == ()
    transcript.edit_message(message)
    again = transcript.editing.editor
    assert isinstance(again, MessageEditor)
    assert [chip.name.text() for chip in again.chips.chips] == ["a.txt"]


def test_a_file_is_attached_again_by_its_name(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    sent(stage, tmp_path, "a.txt")
    (tmp_path / "a.txt").write_text("Another text\n", encoding="utf-8")
    known = KnownFile("a.txt", path=str(tmp_path / "a.txt"), changed=True)
    stage.states.attachments.set_outdated([known])
    line = stage.window.chat.changed_line
    assert line.isVisible()
    assert line.words.text() == "a.txt has changed since it was sent."
    line.attach_button.click()
    assert not line.isVisible()
    place = stage.state.current
    until(lambda: all(each.part for each in stage.states.attachments.of(place)))
    (made,) = stage.states.attachments.of(place)
    assert made.part is not None
    assert made.part.text == "Another text\n"


def test_the_list_of_names_offers_the_files_of_the_chat(
    stage: Stage, qtbot: QtBot, tmp_path: Path
) -> None:
    sent(stage, tmp_path, "a.txt", "b.txt")
    stage.window.composer.setFocus()
    qtbot.keyClicks(stage.window.composer.editor, "@")
    found = stage.window.attaching.list
    names = {found.list.item(row).text() for row in range(found.list.count())}
    assert found.isVisible()
    assert names == {"a.txt", "b.txt"}


def test_files_of_other_chats_are_offered_and_attached(
    stage: Stage, qtbot: QtBot, tmp_path: Path
) -> None:
    sent(stage, tmp_path, "a.txt", "b.txt")
    stage.controller.new_conversation()
    stage.wait_until_idle()
    editor = stage.window.composer.editor
    editor.setFocus()
    qtbot.keyClicks(editor, "@")
    found = stage.window.attaching.list
    until(lambda: found.list.count() == 2)
    assert [found.list.item(row).text() for row in (0, 1)] == ["b.txt: attach", "a.txt: attach"]
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    until(lambda: chips(stage) == ["b.txt"])
    assert editor.text() == ""


def test_what_is_read_of_a_file_is_chosen_in_its_card(stage: Stage, tmp_path: Path) -> None:
    attach(stage, tmp_path, "a.txt")
    stage.window.composer.chips.chips[0].opened.emit()
    card = stage.window.attaching.viewer.card
    assert card is not None
    card.choices[Reads.PASSAGES].click()
    (made,) = stage.states.attachments.of(None)
    assert made.part is not None
    assert made.part.reads is Reads.PASSAGES
    assert stage.window.composer.chips.chips[0].about.text() == "passages that fit the question"


def test_files_follow_the_shown_chat(stage: Stage, tmp_path: Path) -> None:
    sent(stage, tmp_path, "a.txt")
    attach(stage, tmp_path, "b.txt")
    chat = stage.state.current
    assert chat is not None
    stage.controller.new_conversation()
    assert chips(stage) == []
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    assert chips(stage) == ["b.txt"]
    QApplication.processEvents()
    flush()
    assert isinstance(stage.states.attachments.of(chat)[0].part, FilePart)
