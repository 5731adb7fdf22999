"""Collections at the composer: their chips, "@", and what switches them in a chat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.ui.documents.chip import AttachmentChip
from engine import Chat
from fakes import MODEL
from stage import Stage, flush, until


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "data").mkdir()
    made = Stage(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def letters(stage: Stage, tmp_path: Path) -> int:
    """A collection of two files, one of them without a text."""
    stage.ready(MODEL)
    folder = tmp_path / "Letters"
    folder.mkdir()
    (folder / "one.txt").write_text("Dear Ada, the harvest was good.", encoding="utf-8")
    (folder / "empty.txt").write_text("", encoding="utf-8")
    id = stage.controller.collections.add([folder])
    state = stage.states.collections
    until(lambda: state.view(id).scanned and state.view(id).done == state.view(id).files > 0)
    stage.wait_until_idle()
    return id


def used(stage: Stage) -> tuple[int, ...]:
    return stage.state.settings(stage.state.current).collections


def chips(stage: Stage) -> list[AttachmentChip]:
    return stage.window.composer.chips.chips


def offered(stage: Stage) -> list[str]:
    found = stage.window.attaching.list.list
    return [found.item(row).text() for row in range(found.count())]


def test_at_uses_a_collection_and_then_names_it(stage: Stage, letters: int, qtbot: QtBot) -> None:
    editor = stage.window.composer.editor
    editor.setFocus()
    qtbot.keyClicks(editor, "In @lett")
    assert offered(stage) == ["Letters: use in this chat"]
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert used(stage) == (letters,)
    assert editor.text() == "In "
    qtbot.keyClicks(editor, "@lett")
    assert offered(stage) == ["Letters"]
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert editor.text() == "In Letters "
    assert used(stage) == (letters,)


def test_at_alone_leads_to_the_collections(stage: Stage, qtbot: QtBot) -> None:
    stage.ready(MODEL)
    editor, found = stage.window.composer.editor, stage.window.attaching.list
    editor.setFocus()
    qtbot.keyClicks(editor, "@")
    assert found.isVisible()
    found.manage.click()
    assert stage.window.collections.page is stage.window.shown_page
    assert editor.text() == ""
    assert not found.isVisible()


def test_a_chip_says_how_far_a_collection_is(stage: Stage, letters: int) -> None:
    stage.controller.chat_settings.use_collection(letters)
    (chip,) = chips(stage)
    assert chip.accessibleName() == "Letters, collection, 2 files, 1 problem"
    assert not chip.bar.isVisible()
    assert not stage.window.composer.button.isEnabled(), "there is nothing to be sent"
    stage.controller.collections.rename(letters, "Old letters")
    assert chips(stage) == [chip]
    assert chip.name.text() == "Old letters"


def test_a_chip_is_removed_and_undo_brings_it_back(
    stage: Stage, letters: int, qtbot: QtBot
) -> None:
    stage.controller.chat_settings.use_collection(letters)
    chip = chips(stage)[0]
    chip.setFocus()
    qtbot.keyClick(chip, Qt.Key.Key_Delete)
    assert used(stage) == ()
    assert chips(stage) == []
    assert stage.states.collections.collection(letters) is not None
    editor = stage.window.composer.editor
    assert editor.hasFocus()
    qtbot.keyClick(editor, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert used(stage) == (letters,)
    assert len(chips(stage)) == 1


def test_a_chip_opens_the_page_at_its_collection(
    stage: Stage, letters: int, tmp_path: Path, qtbot: QtBot
) -> None:
    stage.controller.collections.add([tmp_path / "Letters" / "one.txt"], "A first one")
    stage.controller.chat_settings.use_collection(letters)
    chip = chips(stage)[0]
    chip.setFocus()
    qtbot.keyClick(chip, Qt.Key.Key_Return)
    page = stage.window.collections.page
    assert page is not None
    assert page is stage.window.shown_page
    assert page.chosen == letters


def test_chips_are_those_of_the_shown_chat(stage: Stage, letters: int) -> None:
    stage.controller.chat_settings.use_collection(letters)
    stage.window.composer.submitted.emit("How was the harvest?")
    until(lambda: stage.engine.count(Chat) == 1)
    stage.engine.write("Good.")
    stage.engine.finish()
    stage.wait_until_idle()
    assert len(chips(stage)) == 1, "the chat goes on being answered from it"
    chat = stage.state.current
    stage.controller.new_conversation()
    flush()
    assert chips(stage) == []
    assert chat is not None
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    assert len(chips(stage)) == 1
    stage.controller.collections.delete(letters)
    assert chips(stage) == []
    stage.controller.collections.restore()
    assert len(chips(stage)) == 1


def test_a_large_folder_becomes_a_collection_with_a_click(stage: Stage, tmp_path: Path) -> None:
    folders = [tmp_path / "data" / ".." / "Harbour", tmp_path / "Council"]
    for folder in folders:
        folder.mkdir(parents=True)
        for number in range(26):
            (folder / f"{number}.txt").write_text(f"Letter {number}", encoding="utf-8")
    stage.ready(MODEL)
    stage.window.attaching.attached.emit(folders[:1])
    stage.window.attaching.attached.emit(folders)
    until(lambda: "52" in str(stage.state.notices.get("attachments")))
    notice = stage.state.notices["attachments"]
    assert notice.sentence == "The folders Harbour, Council have 52 files."
    stage.window.banners.acted.emit("attachments")
    (made,) = stage.states.collections.collections
    assert used(stage) == (made.id,)
    assert stage.state.notices == {}
    assert stage.states.attachments.of(None) == ()
    until(lambda: stage.states.collections.view(made.id).files == 52)
    assert [chip.name.text() for chip in chips(stage)] == [made.name]
