"""Models on this machine: found in several places, looked into when seen, deleted and brought back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
from app.library import folders as library_places
from app.library.folders import Places
from app.state.chat import ModelPhase, ModelStatus
from app.state.library import FileState, Place
from app.system import json_file
from engine import models_folder
from hostile_hub import Hub, running
from library_fixture import LibraryFixture, loaded
from stage import until


@pytest.fixture
def own() -> Path:
    models_folder().mkdir(parents=True)
    return models_folder()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        yield made


@pytest.fixture
def fixture(qtbot: QtBot, tmp_path: Path) -> Iterator[LibraryFixture]:
    made = LibraryFixture(tmp_path)
    yield made
    made.close()


@pytest.fixture
def online(qtbot: QtBot, tmp_path: Path, hub: Hub) -> Iterator[LibraryFixture]:
    made = LibraryFixture(tmp_path, hub.endpoint)
    yield made
    made.close()


# --- what is here -------------------------------------------------------------------------------


def test_models_of_every_place_are_listed_and_nothing_is_read_before_it_is_seen(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    tiny.write(own / "own.gguf")
    drive = tmp_path / "drive"
    drive.mkdir()
    tiny.write(drive / "other.gguf")
    single = tiny.write(tmp_path / "single.gguf")
    library_places.save(
        tmp_path / "library.json", Places((drive, tmp_path / "unplugged"), (single,))
    )
    fixture.start()
    places = {row.path.name: row.place for row in fixture.library_state.installed}
    assert places == {
        "own.gguf": Place.OWN, "other.gguf": Place.FOLDER, "single.gguf": Place.FILE,
    }  # fmt: skip
    assert {row.state for row in fixture.library_state.installed} == {FileState.UNKNOWN}
    shown = [(row.path, row.present, row.models) for row in fixture.library_state.folders]
    assert shown == [(own, True, 1), (drive, True, 1), (tmp_path / "unplugged", False, 0)]
    assert {file.path.name for file in fixture.state.installed} == set(places)


def test_a_file_that_is_seen_is_looked_into(fixture: LibraryFixture, own: Path) -> None:
    tiny.write(own / "tiny-Q8_0.gguf", format="Q8_0")
    (own / "broken.gguf").write_bytes(b"GGUF\x03\x00\x00\x00 and then nothing")
    fixture.start()
    fixture.library.model_index.inspect_files([row.path for row in fixture.library_state.installed])
    until(
        lambda: all(row.state is not FileState.UNKNOWN for row in fixture.library_state.installed)
    )
    good, bad = fixture.row("tiny-Q8_0.gguf"), fixture.row("broken.gguf")
    assert (good.state, good.format, good.architecture) == (FileState.GOOD, "Q8_0", "llama")
    assert good.memory is not None
    assert good.memory.needed_bytes > good.size_bytes
    assert bad.state is FileState.BAD
    assert bad.problem.endswith(".")
    assert bad.remedy


def test_a_file_that_changed_is_looked_into_again(fixture: LibraryFixture, own: Path) -> None:
    path = own / "model.gguf"
    path.write_bytes(b"GGUF")
    fixture.start()
    fixture.library.model_index.inspect_files([path])
    until(lambda: fixture.row("model.gguf").state is FileState.BAD)
    tiny.write(path)
    fixture.library.opened()
    fixture.settle()
    assert fixture.row("model.gguf").state is FileState.UNKNOWN
    fixture.library.model_index.inspect_files([path])
    until(lambda: fixture.row("model.gguf").state is FileState.GOOD)


def test_a_linked_file_that_is_gone_stays_listed_as_missing(
    fixture: LibraryFixture, tmp_path: Path
) -> None:
    path = tiny.write(tmp_path / "model.gguf")
    fixture.start()
    fixture.library.open_files([path])
    fixture.settle()
    assert json_file.read(tmp_path / "library.json")["files"] == [str(path)]
    path.unlink()
    fixture.library.opened()
    fixture.settle()
    assert fixture.row("model.gguf").state is FileState.MISSING
    assert fixture.state.installed == ()
    fixture.library.model_index.unlink(path)
    fixture.settle()
    assert fixture.names() == []


def test_folders_are_added_once_and_taken_out_without_touching_them(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    path = tiny.write(drive / "other.gguf")
    fixture.start()
    fixture.library.open_files([drive])
    fixture.library.open_files([drive, own])
    fixture.settle()
    assert fixture.names() == ["other.gguf"]
    assert [row.path for row in fixture.library_state.folders] == [own, drive]
    fixture.library.model_index.remove_folder(drive)
    fixture.settle()
    assert fixture.names() == []
    assert path.is_file()


def test_a_model_used_from_elsewhere_is_remembered_even_as_the_first(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    path = tiny.write(tmp_path / "opened.gguf")
    fixture.start()
    fixture.state.set_model(ModelStatus(ModelPhase.LOADING, path, "opened"))
    fixture.settle()
    assert fixture.names() == []
    fixture.state.set_model(loaded(path))
    fixture.settle()
    assert fixture.names() == ["opened.gguf"]
    assert json_file.read(tmp_path / "library.json")["files"] == [str(path)]


def test_a_model_used_from_an_own_folder_is_listed_once(fixture: LibraryFixture, own: Path) -> None:
    path = tiny.write(own / "own.gguf")
    fixture.state.set_model(loaded(path))
    fixture.start()
    fixture.settle()
    assert fixture.names() == ["own.gguf"]
    assert fixture.library.model_index.places == Places()


# --- deleting -----------------------------------------------------------------------------------


def test_deleting_can_be_undone_and_happens_for_good_when_the_app_closes(
    fixture: LibraryFixture, own: Path
) -> None:
    one, two = tiny.write(own / "one.gguf"), tiny.write(own / "two.gguf")
    content = one.read_bytes()
    fixture.start()
    fixture.library.model_index.delete(one)
    fixture.settle()
    assert fixture.names() == ["two.gguf"]
    assert fixture.library_state.line.action == "Undo"
    fixture.library.act_on_line()
    fixture.settle()
    assert fixture.names() == ["one.gguf", "two.gguf"]
    assert one.read_bytes() == content
    fixture.library.model_index.delete(two)
    fixture.settle()
    fixture.library.close()
    assert list(own.iterdir()) == [one]


def test_what_is_deleted_is_gone_for_good_once_undo_is(
    fixture: LibraryFixture, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    fixture.library.model_index._undo.setInterval(0)
    fixture.library.model_index.delete(path)
    until(lambda: fixture.library_state.installed == ())
    until(lambda: fixture.library_state.line is None and not list(own.iterdir()))


def test_all_parts_of_a_split_model_go_and_come_back(fixture: LibraryFixture, own: Path) -> None:
    parts = [own / f"big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(b"GGUF")
    fixture.start()
    assert fixture.row(parts[0].name).size_bytes == 12
    fixture.library.model_index.delete(parts[0])
    fixture.settle()
    assert not any(part.exists() for part in parts)
    fixture.library.model_index.undo_delete()
    fixture.settle()
    assert all(part.exists() for part in parts)


def test_a_model_in_use_is_not_deleted_but_offered_to_be_unloaded(
    qtbot: QtBot, fixture: LibraryFixture, own: Path
) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    fixture.state.set_model(loaded(path))
    fixture.library.model_index.delete(path)
    fixture.settle()
    assert path.is_file()
    assert fixture.library_state.line.action == "Unload"
    with qtbot.waitSignal(fixture.library.unload_requested):
        fixture.library.act_on_line()
    fixture.state.set_model(ModelStatus(ModelPhase.LOADING, path, "one"))
    fixture.library.model_index.delete(path)
    fixture.settle()
    assert path.is_file()


def test_a_folder_that_may_not_be_changed_keeps_its_files_and_says_so(
    fixture: LibraryFixture, own: Path
) -> None:
    parts = [own / f"big-{number:05}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(b"GGUF")
    fixture.start()
    parts[0].unlink()  # gone behind our back: renaming it fails
    fixture.library.model_index.delete(parts[0])
    fixture.settle()
    assert fixture.library_state.line.trouble
    assert "could not be deleted" in fixture.library_state.line.sentence
    assert parts[1].is_file()


def test_undo_never_overwrites_a_new_file_of_the_same_name(
    fixture: LibraryFixture, own: Path
) -> None:
    path = tiny.write(own / "one.gguf")
    fixture.start()
    fixture.library.model_index.delete(path)
    fixture.settle()
    path.write_bytes(b"GGUF new")
    fixture.library.model_index.undo_delete()
    fixture.settle()
    assert path.read_bytes() == b"GGUF new"
    assert fixture.library_state.line.trouble


def test_what_a_crash_left_deleted_is_removed_by_the_next_start(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    left = own / ".one.gguf.tokonoma-deleted"
    other = own / ".hidden"
    left.touch()
    other.touch()
    fixture.start()
    assert not left.exists()
    assert other.exists()
