"""Page of collections and the section of the panel: what they show, and what they change."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QInputDialog

from app.domain.chat_settings import ChatSettings
from app.ui.collections.page import CollectionsPage
from fakes import MODEL
from stage import Stage, flush, until


@pytest.fixture
def page(stage: Stage, tmp_path: Path) -> CollectionsPage:
    stage.ready(MODEL)
    folder = tmp_path / "Letters"
    folder.mkdir()
    (folder / "one.txt").write_text("Dear Ada, the harvest was good.")
    (folder / "empty.txt").write_text("")
    stage.window.collections.open()
    page = stage.window.collections.page
    assert page is not None
    return page


def rows(page: CollectionsPage) -> list[str]:
    return [page.list.item(row).text() for row in range(page.list.count())]


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
    assert page.problems.item(0).text().startswith("There is no text in empty.txt.")
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


def test_more_is_added_to_the_chosen_one(
    stage: Stage, page: CollectionsPage, tmp_path: Path
) -> None:
    (tmp_path / "two.txt").write_text("The turbine is made of titanium.")
    page.added.emit([tmp_path / "two.txt"])
    page.added.emit([tmp_path / "Letters"])
    read(stage)
    assert page.chosen == stage.states.collections.collections[0].id
    page.list.setCurrentRow(1)
    page._add_sources([tmp_path / "Letters"])
    until(lambda: rows(page)[1] == "two.txt\n3 files · 1 problem")
    assert page.chosen == stage.states.collections.collections[1].id


def test_a_file_that_failed_is_tried_again(stage: Stage, page: CollectionsPage) -> None:
    folder = stage.folder / "Locked"
    folder.mkdir()
    (folder / "a.txt").write_text("protected")
    page.added.emit([folder])
    read(stage)
    assert rows(page) == ["Locked\n1 file · 1 problem"]
    (folder / "a.txt").write_text("open text")
    page.look_button.click()
    until(lambda: rows(page) == ["Locked\n1 file"])
    assert not page.problems.isVisible()


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
