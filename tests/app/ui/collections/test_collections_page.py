"""Page of collections and the section of the panel: what they show, and what they change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QInputDialog
from pytestqt.qtbot import QtBot

from app.domain.chat_settings import ChatSettings
from app.domain.collection import CollectionView, Problem
from app.ui.collections.page import CollectionsPage
from app.ui.documents.chip import AttachmentChip
from app.ui.widgets import accessibility
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
def page(stage: Stage, tmp_path: Path) -> CollectionsPage:
    stage.ready(MODEL)
    folder = tmp_path / "Letters"
    folder.mkdir()
    (folder / "one.txt").write_text("Dear Ada, the harvest was good.", encoding="utf-8")
    (folder / "empty.txt").write_text("", encoding="utf-8")
    stage.window.collections.open()
    page = stage.window.collections.page
    assert page is not None
    return page


def rows(page: CollectionsPage) -> list[str]:
    return [page.list.item(row).text() for row in range(page.list.count())]


def contents(page: CollectionsPage) -> list[str]:
    return [page.contents.item(row).text() for row in range(page.contents.count())]


def notice(stage: Stage) -> str:
    found = stage.state.notices.get("collection")
    return found.sentence if found else ""


def read(stage: Stage) -> None:
    state = stage.states.collections
    until(lambda: all(v.scanned and v.done == v.files > 0 for v in state.views.values()))
    stage.wait_until_idle()


def test_a_collection_is_made_renamed_and_deleted(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    assert page.nothing.isVisible()
    assert not page.list.isVisible()
    page.added.emit([tmp_path / "Letters"])
    read(stage)
    assert rows(page) == ["Letters\n2 files · 1 problem"]
    assert contents(page)[0] == f"Letters\n{tmp_path / 'Letters'}"
    assert contents(page)[1].startswith("There is no text in empty.txt.")
    page.rename_button.click()
    dialog = page.findChild(QInputDialog)
    assert dialog is not None
    assert dialog.textValue() == "Letters"
    dialog.setTextValue("Old letters")
    dialog.accept()
    flush()
    assert rows(page) == ["Old letters\n2 files · 1 problem"]
    page.delete_button.click()
    assert rows(page) == []
    assert page.undo.words.text() == "“Old letters” was deleted."
    page.undo.button.click()
    assert rows(page) == ["Old letters\n2 files · 1 problem"]


def test_the_focus_stays_on_the_page_when_the_last_one_is_deleted(
    stage: Stage, page: CollectionsPage, tmp_path: Path, qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    heard: list[str] = []
    page.added.emit([tmp_path / "Letters"])
    read(stage)
    page.delete_button.setFocus()
    monkeypatch.setattr(accessibility, "announce", lambda _, words: heard.append(words))
    qtbot.keyClick(page.delete_button, Qt.Key.Key_Space)
    assert stage.window.focusWidget() is page.folder_button
    assert heard == ["“Letters” was deleted."]
    page.undo.button.setFocus()
    qtbot.keyClick(page.undo.button, Qt.Key.Key_Space)
    assert stage.window.focusWidget() is page.list


def test_more_is_added_to_the_chosen_one(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    (tmp_path / "two.txt").write_text("The turbine is made of titanium.", encoding="utf-8")
    page.added.emit([tmp_path / "two.txt"])
    page.added.emit([tmp_path / "Letters"])
    read(stage)
    assert page.chosen == stage.states.collections.collections[0].id
    page.list.setCurrentRow(1)
    page._add_sources([tmp_path / "Letters"])
    until(lambda: rows(page)[1] == "two.txt\n3 files · 1 problem")
    assert page.chosen == stage.states.collections.collections[1].id


def test_a_file_that_failed_is_tried_again(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    folder = tmp_path / "Locked"
    folder.mkdir()
    (folder / "a.txt").write_text("protected", encoding="utf-8")
    page.added.emit([folder])
    read(stage)
    assert rows(page) == ["Locked\n1 file · 1 problem"]
    (folder / "a.txt").write_text("open text", encoding="utf-8")
    page.look_button.click()
    until(lambda: rows(page) == ["Locked\n1 file"])
    assert contents(page) == [f"Locked\n{folder}"]


def test_a_chat_uses_a_collection_by_its_switch(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    page.added.emit([tmp_path / "Letters"])
    read(stage)
    stage.window.open_panel("collections")
    section = stage.window.panel.content.documents
    (id,) = section.rows
    assert section.rows[id].title.text() == "Letters"
    section.rows[id].switch.click()
    assert stage.state.settings(None).collections == (id,)
    assert section.mark.isVisible()
    section.rows[id].switch.click()
    assert stage.state.settings(None) == ChatSettings(model=stage.state.settings(None).model)
    section.manage_button.click()
    assert page.isVisible()


def test_the_section_follows_the_collections(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    stage.window.open_panel("collections")
    section = stage.window.panel.content.documents
    assert section.rows == {}
    stage.controller.collections.add([tmp_path / "Letters"])
    read(stage)
    (row,) = section.rows.values()
    assert row.words.text() == "2 files · 1 problem"
    stage.controller.collections.delete(next(iter(section.rows)))
    assert section.rows == {}


def test_a_source_is_taken_out(
    stage: Stage, page: CollectionsPage, tmp_path: Path, qtbot: QtBot
) -> None:
    (tmp_path / "two.txt").write_text("The turbine is made of titanium.", encoding="utf-8")
    page.added.emit([tmp_path / "Letters"])
    page._add_sources([tmp_path / "two.txt"])
    read(stage)
    assert not page.remove_button.isVisible()
    page.folder_requested.disconnect()
    shown: list[Path] = []
    page.folder_requested.connect(shown.append)
    assert not page.show_button.isVisible()
    page.contents.setCurrentRow(2)  # the file without a text, which is no source
    page.show_button.click()
    assert shown == [tmp_path / "Letters" / "empty.txt"]
    assert not page.remove_button.isVisible()
    page.contents.setCurrentRow(0)
    assert page.remove_button.isVisible()
    qtbot.keyClick(page.contents, Qt.Key.Key_Delete)
    until(lambda: rows(page) == ["Letters\n1 file"])  # and nothing is said of those taken out
    assert contents(page) == [f"two.txt\n{tmp_path / 'two.txt'}"]
    assert (tmp_path / "Letters" / "one.txt").exists()


def test_a_collection_is_used_in_the_chat(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    page.added.emit([tmp_path / "Letters"])
    page.use_button.click()
    assert stage.state.settings(None).collections == (page.chosen,)
    assert stage.window.chat.isVisible()
    assert len(stage.window.composer.chips.chips) == 1
    stage.window.collections.open()
    assert page.use_button.text() == "Stop using in this chat"
    page.use_button.click()
    assert stage.state.settings(None).collections == ()
    assert page.use_button.text() == "Use in this chat"
    assert page.isVisible()


def test_what_is_dropped_on_the_page_becomes_a_collection(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "Letters"))])
    copy, buttons, keys = Qt.DropAction.CopyAction, Qt.MouseButton, Qt.KeyboardModifier
    where, left, none = QPointF(50, 50), buttons.LeftButton, keys.NoModifier
    over = QDragEnterEvent(where.toPoint(), copy, data, left, none)
    QApplication.sendEvent(page, over)
    assert over.isAccepted()
    assert page.drop_area.sentence() == "Drop to make a collection of Letters"
    QApplication.sendEvent(page, QDropEvent(where, copy, data, left, none))
    read(stage)
    assert rows(page) == ["Letters\n2 files · 1 problem"]
    assert stage.states.attachments.of(None) == ()
    assert not page.drop_area.isVisible()


def test_the_same_folder_again_chooses_its_collection(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    (tmp_path / "Notes").mkdir()
    page.added.emit([tmp_path / "Letters"])
    page.added.emit([tmp_path / "Notes"])
    assert page.list.currentRow() == 1
    page.added.emit([tmp_path / "Notes" / ".." / "Letters"])
    assert page.list.count() == 2
    assert page.list.currentRow() == 0


def test_another_folder_of_the_same_name_gets_a_number(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    (tmp_path / "Old" / "Letters").mkdir(parents=True)
    page.added.emit([tmp_path / "Letters"])
    page.added.emit([tmp_path / "Old" / "Letters"])
    assert [row.split("\n")[0] for row in rows(page)] == ["Letters", "Letters 2"]


def test_several_files_are_named_after_their_folder(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    folder = tmp_path / "Letters"
    page.added.emit([folder / "one.txt", folder / "empty.txt"])
    assert rows(page)[0].startswith("Letters\n")


def test_a_folder_in_a_folder_is_read_once(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    inner = tmp_path / "Letters" / "1926"
    inner.mkdir()
    (inner / "two.txt").write_text("The turbine is made of titanium.", encoding="utf-8")
    page.added.emit([inner])
    page._add_sources([inner / "two.txt"])
    assert notice(stage) == "two.txt is in “1926” already."
    page._add_sources([tmp_path / "Letters"])
    assert notice(stage) == ""
    (collection,) = stage.states.collections.collections
    assert collection.sources == (str(tmp_path / "Letters"),)
    until(lambda: rows(page) == ["1926\n3 files · 1 problem"])


def test_a_disk_and_the_data_of_the_app_are_refused(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    root = Path(os.path.abspath(os.sep))
    page.added.emit([root])
    assert notice(stage) == f"The whole disk {root} cannot be a collection."
    page.added.emit([tmp_path / "data" / "blobs"])
    assert notice(stage) == f"The folder {tmp_path / 'data' / 'blobs'} has the app's own data."
    assert rows(page) == []
    page.added.emit([root, tmp_path / "Letters"])  # the other is taken
    assert notice(stage) == f"The whole disk {root} cannot be a collection."
    assert [row.split("\n")[0] for row in rows(page)] == ["Letters"]


def test_a_page_without_collections_has_the_focus_where_one_is_made(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    assert page.folder_button.hasFocus()
    page.added.emit([tmp_path / "Letters"])
    stage.window.close_page()
    stage.window.collections.open()
    assert page.list.hasFocus()


def test_what_was_read_of_a_folder_that_is_away_is_forgotten(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    page.added.emit([tmp_path / "Letters"])
    read(stage)
    (tmp_path / "Letters").rename(tmp_path / "away")
    page.look_button.click()
    until(lambda: len(contents(page)) == 3)
    page.contents.setCurrentRow(2)  # the file without a text
    assert not page.remove_button.isVisible()
    page.contents.setCurrentRow(1)
    assert contents(page)[1].startswith(f"{tmp_path / 'Letters'} cannot be reached.")
    assert page.remove_button.text() == "Forget its files"
    page.remove_button.click()
    until(lambda: rows(page)[0].startswith("Letters\n0 files"))
    assert stage.states.collections.collections[0].sources == (str(tmp_path / "Letters"),)


def test_the_contents_stay_in_their_place_while_files_are_read(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    page.added.emit([tmp_path / "Letters"])
    read(stage)
    (id,) = stage.states.collections.views
    found = [Problem(f"/{n}.pdf", f"{n}.pdf is damaged or incomplete.") for n in range(1000)]
    stage.states.collections.set_views({id: CollectionView(1000, 990, problems=tuple(found[:990]))})
    assert page.contents.count() == 202  # the folder, as many as are shown, and how many more
    assert contents(page)[-1] == "And 790 more"
    page.contents.setCurrentRow(150)
    flush()
    place = page.contents.verticalScrollBar().value()
    assert place > 0
    stage.states.collections.set_views({id: CollectionView(1000, 1000, problems=tuple(found))})
    assert contents(page)[-1] == "And 800 more"
    assert page.contents.currentRow() == 150
    assert page.contents.verticalScrollBar().value() == place


def test_undo_restores_the_collection_and_not_a_chat(
    stage: Stage, page: CollectionsPage, tmp_path: Path, qtbot: QtBot
) -> None:
    stage.controller.send("Hello")
    until(lambda: stage.engine.count(Chat) == 1)
    stage.engine.finish()
    stage.wait_until_idle()
    stage.controller.deletions.delete([stage.state.conversations[0].id])
    stage.wait_until_idle()
    stage.window.collections.open()
    page.added.emit([tmp_path / "Letters"])
    stage.window.activateWindow()
    page.list.setFocus()
    qtbot.keyClick(page.list, Qt.Key.Key_Delete)
    assert rows(page) == []
    control = Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(page.folder_button, Qt.Key.Key_Z, control)
    assert len(rows(page)) == 1
    assert stage.state.conversations == ()
    qtbot.keyClick(page.list, Qt.Key.Key_Z, control)
    until(lambda: len(stage.state.conversations) == 1)


# --- at the composer ------------------------------------------------------------------------------


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
