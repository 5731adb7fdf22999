"""Model index: scan and inspection."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import seeing_files
import tiny
import tiny_encoders
from app.domain.model_ref import Local
from app.library import folders as library_places
from app.library.folders import Places
from app.state.chat import ModelPhase, ModelStatus
from app.state.library import FileState, Place
from app.system import json_file
from engine import FaultKind
from library_fixture import LibraryFixture, loaded
from stage import until

# --- scan and inspection ------------------------------------------------------------------------


def test_models_of_all_places_are_listed_without_opening_files(
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


def test_visible_file_is_inspected(fixture: LibraryFixture, own: Path) -> None:
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
    assert bad.fault is not None
    assert bad.fault.kind is FaultKind.DAMAGED


def test_changed_file_is_inspected_again(fixture: LibraryFixture, own: Path) -> None:
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


def test_missing_linked_file_stays_listed(fixture: LibraryFixture, tmp_path: Path) -> None:
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


def test_folders_are_added_once_and_removed_without_changing_files(
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


def test_model_loaded_from_elsewhere_is_linked(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    path = tiny.write(tmp_path / "opened.gguf")
    fixture.start()
    fixture.state.set_model(ModelStatus(ModelPhase.LOADING, Local(path), "opened"))
    fixture.settle()
    assert fixture.names() == []
    fixture.state.set_model(loaded(path))
    fixture.settle()
    assert fixture.names() == ["opened.gguf"]
    assert json_file.read(tmp_path / "library.json")["files"] == [str(path)]


def test_a_loaded_model_makes_room_for_another_by_what_it_holds_now(
    fixture: LibraryFixture, own: Path
) -> None:
    index = fixture.library.model_index
    assert index.reclaimable() == 0
    fixture.state.set_model(loaded(tiny.write(own / "own.gguf")))
    assert index.reclaimable() == 20_000  # not the 50,000 bytes of a full context


def test_model_loaded_from_a_listed_folder_is_listed_once(
    fixture: LibraryFixture, own: Path
) -> None:
    path = tiny.write(own / "own.gguf")
    fixture.state.set_model(loaded(path))
    fixture.start()
    fixture.settle()
    assert fixture.names() == ["own.gguf"]
    assert fixture.library.model_index.places == Places()


# --- watching the folders -------------------------------------------------------------------------


def test_files_copied_into_a_folder_and_taken_away_are_noticed(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    (own / "deep").mkdir()
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform == "win32":  # links need a permission there
        disk = own
    else:
        (own / "linked").symlink_to(disk, target_is_directory=True)
    fixture.start()
    assert fixture.names() == []
    for folder, name in ((own, "a"), (own / "deep", "b"), (disk, "c")):
        tiny.write(folder / f"{name}.gguf")
    until(lambda: fixture.names() == ["a.gguf", "b.gguf", "c.gguf"])
    (own / "deep" / "b.gguf").unlink()
    until(lambda: fixture.names() == ["a.gguf", "c.gguf"])
    (own / "new").mkdir()
    until(lambda: str(own / "new") in fixture.library.model_index._watcher.directories())
    (disk / "c.gguf").rename(own / "new" / "d.gguf")
    until(lambda: fixture.names() == ["a.gguf", "d.gguf"])


def test_a_file_that_is_still_being_copied_is_inspected_once_it_is_complete(
    fixture: LibraryFixture, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.library.index._COPYING_MILLISECONDS", 50)
    content = tiny.write(tmp_path / "m.gguf").read_bytes()
    path = own / "m.gguf"
    fixture.start()
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        until(lambda: fixture.names() == ["m.gguf"])
        fixture.library.model_index.inspect_files([path])
        until(lambda: fixture.row("m.gguf").state is FileState.BAD)
        file.write(content[len(content) // 2 :])
    # Unlike a real copy, which is read all the time, this one stood still: a change wakes the scan.
    (own / "other.txt").touch()
    until(lambda: fixture.row("m.gguf").state is FileState.UNKNOWN)
    fixture.library.model_index.inspect_files([path])
    until(lambda: fixture.row("m.gguf").state is FileState.GOOD)


def test_a_model_for_embeddings_is_told_apart_and_not_offered_for_chats(
    fixture: LibraryFixture, own: Path
) -> None:
    bert = tiny_encoders.write(own / "minilm.gguf")
    pooled = {"qwen3.pooling_type": 3}
    causal = tiny.write(own / "qwen.gguf", architecture="qwen3", metadata=pooled)
    chat = tiny.write(own / "chat.gguf", architecture="qwen3")
    fixture.start()
    fixture.library.model_index.inspect_files([bert, causal, chat])
    until(
        lambda: all(row.state is not FileState.UNKNOWN for row in fixture.library_state.installed)
    )
    assert {row.path: row.state for row in fixture.library_state.installed} == {
        bert: FileState.EMBEDS,
        causal: FileState.EMBEDS,
        chat: FileState.GOOD,
    }
    assert [file.path for file in fixture.state.installed] == [chat]


def test_the_picture_encoder_of_a_model_is_not_offered_for_chats(
    fixture: LibraryFixture, own: Path
) -> None:
    model = seeing_files.write_pair(own)
    fixture.start()
    fixture.library.model_index.inspect_files(list(own.glob("*.gguf")))
    until(
        lambda: all(row.state is not FileState.UNKNOWN for row in fixture.library_state.installed)
    )
    assert len(fixture.library_state.installed) == 2
    assert [file.path for file in fixture.state.installed] == [model]
