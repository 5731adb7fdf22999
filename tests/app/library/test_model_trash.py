"""Trash of models: undo, restoring later, removing, what a crash leaves, and damaged lists."""

from __future__ import annotations

import json
import stat
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

import tiny
from app.domain.chat import KEEP_DELETED_SECONDS
from app.domain.model_ref import Local
from app.library import trash
from app.state.chat import ModelPhase, ModelStatus
from app.state.library import LineAction
from engine import models_folder
from fakes import MODEL
from library_fixture import LibraryFixture, loaded, offer
from stage import Stage, flush, until


def delete(fixture: LibraryFixture, path: Path) -> None:
    fixture.library.trash.delete(path)
    fixture.settle()


def restarted(fixture: LibraryFixture, *, days: float = 0) -> LibraryFixture:
    """Another run of the app, so many days later."""
    fixture.library.close()
    again = LibraryFixture(fixture.folder)
    again.library.trash._now = lambda: time.time() + days * 24 * 3600
    again.start()
    again.settle()
    return again


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.skipif(sys.platform != "win32", reason="a dot hides it on the other systems")
def test_explorer_does_not_show_a_deleted_model(fixture: LibraryFixture, own: Path) -> None:
    model = tiny.write(own / "one.gguf")
    fixture.start()
    delete(fixture, model)
    (aside,) = own.glob(".one*")
    assert aside.stat().st_file_attributes & stat.FILE_ATTRIBUTE_HIDDEN
    fixture.library.act_on_line()
    fixture.settle()
    assert not model.stat().st_file_attributes & stat.FILE_ATTRIBUTE_HIDDEN


def test_deletion_can_be_undone_and_moves_no_byte(fixture: LibraryFixture, own: Path) -> None:
    one = tiny.write(own / "one.gguf")
    tiny.write(own / "two.gguf")
    before = one.stat()
    fixture.start()
    delete(fixture, one)
    assert fixture.names() == ["two.gguf"]
    line = fixture.library_state.line
    assert line is not None
    assert line.action is LineAction.UNDO
    assert line.sentence == "one is in the trash."
    assert line.remedy.startswith("Emptying the trash frees ")
    (hidden,) = (path for path in own.iterdir() if path.name.startswith("."))
    assert hidden.stat().st_ino == before.st_ino
    fixture.library.act_on_line()
    fixture.settle()
    assert fixture.names() == ["one.gguf", "two.gguf"]
    assert one.stat().st_ino == before.st_ino
    assert fixture.library_state.trash == ()


def test_a_deleted_model_is_kept_when_undo_expires_and_the_app_closes(
    fixture: LibraryFixture, own: Path
) -> None:
    path = tiny.write(own / "one-Q4_0.gguf", format="Q4_0")
    content = path.read_bytes()
    fixture.start()
    fixture.library.trash._undo.setInterval(0)
    delete(fixture, path)
    until(lambda: fixture.library_state.line is None)
    (model,) = fixture.library_state.trash
    assert (model.name, model.size_bytes) == ("one · Q4_0", len(content))
    again = restarted(fixture, days=29)
    try:
        assert again.names() == []
        (kept,) = again.library_state.trash
        assert kept == model
        again.library.trash.restore([kept])
        again.settle()
        assert path.read_bytes() == content
        assert again.names() == [path.name]
        assert visible(own) == [path.name]
        assert again.library_state.trash == ()
    finally:
        again.close()


def test_models_are_removed_after_as_long_as_chats(fixture: LibraryFixture, own: Path) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    delete(fixture, path)
    again = restarted(fixture, days=KEEP_DELETED_SECONDS / 86_400 + 0.01)
    try:
        assert again.library_state.trash == ()
        assert list(own.iterdir()) == []
    finally:
        again.close()


def test_removing_frees_the_space_at_once(fixture: LibraryFixture, own: Path) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    delete(fixture, path)
    fixture.library.trash.remove(fixture.library_state.trash)
    fixture.settle()
    assert list(own.iterdir()) == []
    assert fixture.library_state.trash == ()
    assert fixture.library_state.line is None  # nothing is left to undo


def test_all_pieces_of_a_split_model_are_deleted_and_restored(
    fixture: LibraryFixture, own: Path
) -> None:
    parts = [own / f"big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(b"GGUF")
    fixture.start()
    delete(fixture, parts[0])
    assert visible(own) == []
    fixture.library.trash.undo_delete()
    fixture.settle()
    assert all(part.exists() for part in parts)


def test_a_linked_file_returns_to_the_list(fixture: LibraryFixture, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "elsewhere.gguf")
    fixture.start()
    fixture.library.model_index.link([path])
    fixture.settle()
    delete(fixture, path)
    assert fixture.names() == []
    again = restarted(fixture)
    try:
        again.library.trash.restore(again.library_state.trash)
        again.settle()
        assert again.names() == ["elsewhere.gguf"]
    finally:
        again.close()


def test_a_model_in_use_is_not_deleted_and_unloading_is_offered(
    qtbot: QtBot, fixture: LibraryFixture, own: Path
) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    fixture.state.set_model(loaded(path))
    delete(fixture, path)
    assert path.is_file()
    assert fixture.library_state.line is not None
    assert fixture.library_state.line.action is LineAction.UNLOAD
    with qtbot.waitSignal(fixture.library.unload_requested):
        fixture.library.act_on_line()
    fixture.state.set_model(ModelStatus(ModelPhase.LOADING, Local(path), "one"))
    delete(fixture, path)
    assert path.is_file()


def test_a_failed_deletion_leaves_everything_as_it_was(fixture: LibraryFixture, own: Path) -> None:
    parts = [own / f"big-{number:05}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(b"GGUF")
    fixture.start()
    parts[0].unlink()  # deleted by another program: renaming it fails
    delete(fixture, parts[0])
    assert fixture.library_state.line is not None
    assert fixture.library_state.line.trouble
    assert "could not be deleted" in fixture.library_state.line.sentence
    assert parts[1].is_file()
    assert fixture.library_state.trash == ()


def test_restoring_never_overwrites_a_new_file_of_the_same_name(
    fixture: LibraryFixture, own: Path
) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    delete(fixture, path)
    path.write_bytes(b"GGUF new")
    fixture.library.trash.undo_delete()
    fixture.settle()
    assert path.read_bytes() == b"GGUF new"
    assert fixture.library_state.line is not None
    assert fixture.library_state.line.trouble
    assert len(fixture.library_state.trash) == 1


@pytest.mark.parametrize("damage", ["", "[]", '{"models": [1, {"files": []}]}', "{"])
def test_what_a_crash_or_an_older_version_left_can_be_restored(
    fixture: LibraryFixture,
    own: Path,
    tmp_path: Path,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    content = tiny.write(tmp_path / "one.gguf").read_bytes()
    (own / ".one.gguf.2.tokonoma-deleted").write_bytes(content)
    for number in (1, 2):
        (own / f".big-{number:05}-of-00002.gguf.tokonoma-deleted").write_bytes(b"GGUF")
    (own / ".hidden").touch()
    trash.file(fixture.folder / "library.json").write_text(damage, encoding="utf-8")
    fixture.start()
    fixture.settle()
    assert {model.path.name for model in fixture.library_state.trash} == {
        "one.gguf", "big-00001-of-00002.gguf",
    }  # fmt: skip
    fixture.library.trash.restore(fixture.library_state.trash)
    fixture.settle()
    assert (own / "one.gguf").read_bytes() == content
    assert visible(own) == ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf", "one.gguf"]
    assert (own / ".hidden").exists()


def test_a_list_that_names_other_files_deletes_none_of_them(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    (precious := tmp_path / "precious.txt").write_text("mine", encoding="utf-8")
    row = {
        "path": str(own / "m.gguf"), "name": "m", "size_bytes": 4, "linked": False, "deleted": 0,
        "files": [[str(own / "m.gguf"), str(precious)]],
    }  # fmt: skip
    trash.file(fixture.folder / "library.json").write_text(
        json.dumps({"models": [row]}), encoding="utf-8"
    )
    fixture.start()
    fixture.settle()
    assert fixture.library_state.trash == ()
    assert precious.read_text(encoding="utf-8") == "mine"


def test_a_model_on_an_unplugged_disk_stays_in_the_trash(
    fixture: LibraryFixture, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    path = tiny.write(disk / "one.gguf")
    fixture.start()
    fixture.library.model_index.add_folder(disk)
    fixture.settle()
    delete(fixture, path)
    disk.rename(tmp_path / "unplugged")
    again = restarted(fixture, days=20)
    try:
        assert len(again.library_state.trash) == 1
        again.library.trash.remove(again.library_state.trash)
        again.settle()
        assert len(again.library_state.trash) == 1
        (tmp_path / "unplugged").rename(disk)
        again.library.trash.restore(again.library_state.trash)
        again.settle()
        assert path.is_file()
    finally:
        again.close()


def test_a_model_whose_disk_was_away_for_too_long_is_found_when_it_returns(
    fixture: LibraryFixture, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    path = tiny.write(disk / "one.gguf")
    fixture.start()
    fixture.library.model_index.add_folder(disk)
    fixture.settle()
    delete(fixture, path)
    disk.rename(tmp_path / "unplugged")
    second = restarted(fixture, days=40)
    assert second.library_state.trash == ()
    (tmp_path / "unplugged").rename(disk)
    third = restarted(second, days=41)
    try:
        third.library.trash.restore(third.library_state.trash)
        third.settle()
        assert path.is_file()
    finally:
        third.close()
        second.close()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a permission there")
def test_a_deleted_link_frees_nothing_of_its_target(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    target = tiny.write(tmp_path / "target.gguf")
    (own / "link.gguf").symlink_to(target)
    fixture.start()
    delete(fixture, own / "link.gguf")
    (model,) = fixture.library_state.trash
    assert model.size_bytes < 1000 < target.stat().st_size
    fixture.library.trash.restore([model])
    fixture.settle()
    assert (own / "link.gguf").resolve() == target
    assert target.is_file()


def test_a_full_disk_names_the_space_that_the_trash_holds(
    fixture: LibraryFixture, own: Path
) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    delete(fixture, path)
    fixture.free = 10
    fixture.library.download(offer("big.gguf", 10**9))
    assert fixture.library_state.line is not None
    assert "Empty the trash" in fixture.library_state.line.remedy


# --- the page -------------------------------------------------------------------------------------


def test_the_trash_page_lists_restores_and_removes_models(qtbot: QtBot, stage: Stage) -> None:
    models_folder().mkdir(parents=True, exist_ok=True)
    paths = [tiny.write(models_folder() / f"{name}-F32.gguf") for name in ("one", "two")]
    stage.ready(MODEL)
    library = stage.controller.library
    library.model_index.refresh()
    until(lambda: len(stage.states.library.installed) >= 2)
    assert stage.window.sidebar.trash_button.isHidden()
    for path in paths:
        library.trash.delete(path)
    until(lambda: len(stage.states.library.trash) == 2)
    assert not stage.window.sidebar.trash_button.isHidden()
    stage.window.trash.toggle()
    flush()
    page = stage.window.trash.page
    assert page is not None
    texts = [page.list.item(row).text() for row in range(page.list.count())]
    assert [text.splitlines()[0] for text in texts] == ["two · F32", "one · F32"]
    assert all("Model, " in text and "Will be removed on" in text for text in texts)
    assert "of disk space" in page.space.text()
    page.list.setCurrentRow(1)
    qtbot.mouseClick(page.restore_button, Qt.MouseButton.LeftButton)
    until(lambda: paths[0].is_file() and len(stage.states.library.trash) == 1)
    qtbot.mouseClick(page.empty_button, Qt.MouseButton.LeftButton)
    assert page.confirm.remove_button.text().startswith("Delete 1 model (")
    qtbot.mouseClick(page.confirm.remove_button, Qt.MouseButton.LeftButton)
    until(lambda: stage.states.library.trash == ())
    assert not paths[1].exists()
    assert stage.window.sidebar.trash_button.isHidden()
