"""The list behind "@": files of the chat are named, others are attached."""

from __future__ import annotations

import unicodedata

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.state.attachments import FitEstimate, KnownFile
from app.ui.chat.composer.file_list import FileList
from fakes import MODEL
from stage import Stage

HERE = (KnownFile("fish tax.xlsx", "a" * 64, kind="sheets"), KnownFile("minutes.pdf", "b" * 64))
ELSEWHERE = (KnownFile("letters.docx", "c" * 64), KnownFile("minutes.pdf", "b" * 64))


@pytest.fixture
def list_(stage: Stage) -> FileList:
    stage.ready(MODEL)
    found = stage.window.attaching.list
    found.wanted.disconnect()
    found.wanted.connect(lambda: found.show_files(HERE, ELSEWHERE))
    stage.window.composer.setFocus()
    return found


def rows(found: FileList) -> list[str]:
    if not found.isVisible():
        return []
    return [found.list.item(row).text() for row in range(found.list.count())]


def test_at_opens_the_list_at_the_beginning_of_a_word(
    stage: Stage, list_: FileList, qtbot: QtBot
) -> None:
    editor = stage.window.composer.editor
    qtbot.keyClicks(editor, "ada@example.org ")
    assert rows(list_) == []
    qtbot.keyClicks(editor, "and @")
    assert rows(list_) == ["fish tax.xlsx", "minutes.pdf", "letters.docx: attach"]
    qtbot.keyClicks(editor, "TAX fi")
    assert rows(list_) == ["fish tax.xlsx"]
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert editor.text() == "ada@example.org and fish tax.xlsx "
    assert stage.state.messages == ()
    editor.undo()
    assert editor.text() == "ada@example.org and @TAX fi"


def test_a_decomposed_name_as_macos_has_it_is_found(
    stage: Stage, list_: FileList, qtbot: QtBot
) -> None:
    name = unicodedata.normalize("NFD", "Gr\u00f6\u00dfen \ud559\uc810.md")
    list_.wanted.disconnect()
    list_.wanted.connect(lambda: list_.show_files([KnownFile(name, "d" * 64), *HERE]))
    editor = stage.window.composer.editor
    qtbot.keyClicks(editor, "@")
    editor.insert_text("GR\u00d6SS \ud559")  # no keys of a test have these letters
    assert rows(list_) == [name]


def test_a_file_of_another_chat_is_attached(stage: Stage, list_: FileList, qtbot: QtBot) -> None:
    list_.chosen.disconnect()
    chosen: list[KnownFile] = []
    list_.chosen.connect(chosen.append)
    editor = stage.window.composer.editor
    editor.insert_text("🏮 ")
    qtbot.keyClicks(editor, "@let")
    qtbot.keyClick(editor, Qt.Key.Key_Tab)
    assert chosen == [ELSEWHERE[0]]
    assert editor.text() == "🏮 "


def test_a_file_that_is_not_read_any_more_is_attached_again(
    stage: Stage, list_: FileList, qtbot: QtBot
) -> None:
    stage.states.attachments.set_fit(FitEstimate(100, 8192, forgotten=("minutes.pdf",)))
    qtbot.keyClicks(stage.window.composer.editor, "@min")
    assert rows(list_) == ["minutes.pdf: attach again"]


def test_an_input_method_opens_it_and_escape_closes(
    stage: Stage, list_: FileList, qtbot: QtBot
) -> None:
    editor = stage.window.composer.editor
    commit = QInputMethodEvent("", [])
    commit.setCommitString("\uff20")
    QApplication.sendEvent(editor, commit)
    assert len(rows(list_)) == 3
    qtbot.keyClick(editor, Qt.Key.Key_Escape)
    assert rows(list_) == []
    qtbot.keyClicks(editor, "min")
    assert rows(list_) == []


def test_a_pasted_address_opens_nothing(stage: Stage, list_: FileList) -> None:
    stage.window.composer.insert("@minutes")
    assert rows(list_) == []
