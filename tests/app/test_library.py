"""The library: files found and looked into, downloads from a loopback hub, deleting and undo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
from app import json_file, library_places
from app.download_file import Limits
from app.downloads import Phase, Source
from app.hub import HUB
from app.library import Library
from app.library_places import Places
from app.library_state import FileState, HubPhase, LibraryState, Offer, Place
from app.model_defaults import AS_IN_SETTINGS, ModelDefaults
from app.settings import Settings
from app.state import ModelPhase, ModelStatus, State
from engine import CacheType, ModelLoaded, models_folder
from hostile_hub import Fault, Hub, running
from stage import flush, until

LIMITS = Limits(stall_seconds=2.0, retry_seconds=0.01, attempts=2, margin_bytes=0)
FREE = 10**12


class Desk:
    """A library with its states, over folders of the test's own."""

    def __init__(self, folder: Path, endpoint: str = HUB, free: int = FREE) -> None:
        self.folder, self.free = folder, free
        self.state, self.library_state = State(), LibraryState()
        self.library = Library(
            self.state,
            self.library_state,
            Settings(),
            places_file=folder / "library.json",
            defaults_file=folder / "models.json",
            limits=LIMITS,
            free=lambda path: self.free,
        )
        self.library.hub.endpoint = endpoint
        self.library.downloads.set_endpoint(endpoint)

    def start(self) -> None:
        self.library.start()
        until(lambda: self.library_state.searched)

    def settle(self) -> None:
        """Wait until the thread of files has done what it was given, and its result is here."""
        self._wait()
        self._wait()  # what came back may have had more to do

    def _wait(self) -> None:
        done: list[bool] = []
        self.library._files.run(lambda: True, done.append)
        until(lambda: bool(done))
        flush()

    def row(self, name: str) -> object:
        return next(row for row in self.library_state.installed if row.path.name == name)

    def names(self) -> list[str]:
        return [row.path.name for row in self.library_state.installed]

    def close(self) -> None:
        self.library.close()
        for each in (self.library, self.library_state, self.state):
            each.deleteLater()
        flush()


@pytest.fixture
def own() -> Path:
    models_folder().mkdir(parents=True)
    return models_folder()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        yield made


@pytest.fixture
def desk(qtbot: QtBot, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def online(qtbot: QtBot, tmp_path: Path, hub: Hub) -> Iterator[Desk]:
    made = Desk(tmp_path, hub.endpoint)
    yield made
    made.close()


def loaded(path: Path) -> ModelStatus:
    told = ModelLoaded(
        1, path, path.stem, "llama", "", 1, 256, 1, 50_000, "reference", (), True, 0.1
    )
    return ModelStatus(ModelPhase.READY, path, path.stem, loaded=told)


def offer(name: str, size: int = 0, sha256: str = "") -> Offer:
    return Offer(Source("owner/name", "main", name, size, sha256), Path(name).stem)


def found(hub: Hub, *repositories: str) -> None:
    """What a search on the hub finds from now on."""
    rows = [{"id": name, "tags": ["gguf"], "downloads": 7} for name in repositories]
    hub.api["/api/models"] = Fault(body=json.dumps(rows).encode())


# --- what is here -------------------------------------------------------------------------------


def test_models_of_every_place_are_listed_and_nothing_is_read_before_it_is_seen(
    desk: Desk, own: Path, tmp_path: Path
) -> None:
    tiny.write(own / "own.gguf")
    drive = tmp_path / "drive"
    drive.mkdir()
    tiny.write(drive / "other.gguf")
    single = tiny.write(tmp_path / "single.gguf")
    library_places.save(
        tmp_path / "library.json", Places((drive, tmp_path / "unplugged"), (single,))
    )
    desk.start()
    places = {row.path.name: row.place for row in desk.library_state.installed}
    assert places == {
        "own.gguf": Place.OWN, "other.gguf": Place.FOLDER, "single.gguf": Place.FILE,
    }  # fmt: skip
    assert {row.state for row in desk.library_state.installed} == {FileState.UNKNOWN}
    shown = [(row.path, row.present, row.models) for row in desk.library_state.folders]
    assert shown == [(own, True, 1), (drive, True, 1), (tmp_path / "unplugged", False, 0)]
    assert {file.path.name for file in desk.state.installed} == set(places)


def test_a_file_that_is_seen_is_looked_into(desk: Desk, own: Path) -> None:
    tiny.write(own / "tiny-Q8_0.gguf", format="Q8_0")
    (own / "broken.gguf").write_bytes(b"GGUF\x03\x00\x00\x00 and then nothing")
    desk.start()
    desk.library.look_into([row.path for row in desk.library_state.installed])
    until(lambda: all(row.state is not FileState.UNKNOWN for row in desk.library_state.installed))
    good, bad = desk.row("tiny-Q8_0.gguf"), desk.row("broken.gguf")
    assert (good.state, good.format, good.architecture) == (FileState.GOOD, "Q8_0", "llama")
    assert good.memory is not None
    assert good.memory.needed_bytes > good.size_bytes
    assert bad.state is FileState.BAD
    assert bad.problem.endswith(".")
    assert bad.remedy


def test_a_file_that_changed_is_looked_into_again(desk: Desk, own: Path) -> None:
    path = own / "model.gguf"
    path.write_bytes(b"GGUF")
    desk.start()
    desk.library.look_into([path])
    until(lambda: desk.row("model.gguf").state is FileState.BAD)
    tiny.write(path)
    desk.library.opened()
    desk.settle()
    assert desk.row("model.gguf").state is FileState.UNKNOWN
    desk.library.look_into([path])
    until(lambda: desk.row("model.gguf").state is FileState.GOOD)


def test_a_linked_file_that_is_gone_stays_listed_as_missing(desk: Desk, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "model.gguf")
    desk.start()
    desk.library.open_files([path])
    desk.settle()
    assert json_file.read(tmp_path / "library.json")["files"] == [str(path)]
    path.unlink()
    desk.library.opened()
    desk.settle()
    assert desk.row("model.gguf").state is FileState.MISSING
    assert desk.state.installed == ()
    desk.library.shelf.unlink(path)
    desk.settle()
    assert desk.names() == []


def test_folders_are_added_once_and_taken_out_without_touching_them(
    desk: Desk, own: Path, tmp_path: Path
) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    path = tiny.write(drive / "other.gguf")
    desk.start()
    desk.library.open_files([drive])
    desk.library.open_files([drive, own])
    desk.settle()
    assert desk.names() == ["other.gguf"]
    assert [row.path for row in desk.library_state.folders] == [own, drive]
    desk.library.shelf.remove_folder(drive)
    desk.settle()
    assert desk.names() == []
    assert path.is_file()


def test_a_model_used_from_elsewhere_is_remembered_even_as_the_first(
    desk: Desk, own: Path, tmp_path: Path
) -> None:
    path = tiny.write(tmp_path / "opened.gguf")
    desk.start()
    desk.state.set_model(ModelStatus(ModelPhase.LOADING, path, "opened"))
    desk.settle()
    assert desk.names() == []
    desk.state.set_model(loaded(path))
    desk.settle()
    assert desk.names() == ["opened.gguf"]
    assert json_file.read(tmp_path / "library.json")["files"] == [str(path)]


def test_a_model_used_from_an_own_folder_is_listed_once(desk: Desk, own: Path) -> None:
    path = tiny.write(own / "own.gguf")
    desk.state.set_model(loaded(path))
    desk.start()
    desk.settle()
    assert desk.names() == ["own.gguf"]
    assert desk.library.shelf.places == Places()


# --- deleting -----------------------------------------------------------------------------------


def test_deleting_can_be_undone_and_happens_for_good_when_the_app_closes(
    desk: Desk, own: Path
) -> None:
    one, two = tiny.write(own / "one.gguf"), tiny.write(own / "two.gguf")
    content = one.read_bytes()
    desk.start()
    desk.library.shelf.delete(one)
    desk.settle()
    assert desk.names() == ["two.gguf"]
    assert desk.library_state.line.action == "Undo"
    desk.library.act_on_line()
    desk.settle()
    assert desk.names() == ["one.gguf", "two.gguf"]
    assert one.read_bytes() == content
    desk.library.shelf.delete(two)
    desk.settle()
    desk.library.close()
    assert list(own.iterdir()) == [one]


def test_what_is_deleted_is_gone_for_good_once_undo_is(
    desk: Desk, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.write(own / "one.gguf")
    desk.start()
    desk.library.shelf._undo.setInterval(0)
    desk.library.shelf.delete(path)
    until(lambda: desk.library_state.installed == ())
    until(lambda: desk.library_state.line is None and not list(own.iterdir()))


def test_all_parts_of_a_split_model_go_and_come_back(desk: Desk, own: Path) -> None:
    parts = [own / f"big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(b"GGUF")
    desk.start()
    assert desk.row(parts[0].name).size_bytes == 12
    desk.library.shelf.delete(parts[0])
    desk.settle()
    assert not any(part.exists() for part in parts)
    desk.library.shelf.undo_delete()
    desk.settle()
    assert all(part.exists() for part in parts)


def test_a_model_in_use_is_not_deleted_but_offered_to_be_unloaded(
    qtbot: QtBot, desk: Desk, own: Path
) -> None:
    path = tiny.write(own / "one.gguf")
    desk.start()
    desk.state.set_model(loaded(path))
    desk.library.shelf.delete(path)
    desk.settle()
    assert path.is_file()
    assert desk.library_state.line.action == "Unload"
    with qtbot.waitSignal(desk.library.unload_requested):
        desk.library.act_on_line()
    desk.state.set_model(ModelStatus(ModelPhase.LOADING, path, "one"))
    desk.library.shelf.delete(path)
    desk.settle()
    assert path.is_file()


def test_a_folder_that_may_not_be_changed_keeps_its_files_and_says_so(
    desk: Desk, own: Path
) -> None:
    parts = [own / f"big-{number:05}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(b"GGUF")
    desk.start()
    parts[0].unlink()  # gone behind our back: renaming it fails
    desk.library.shelf.delete(parts[0])
    desk.settle()
    assert desk.library_state.line.trouble
    assert "could not be deleted" in desk.library_state.line.sentence
    assert parts[1].is_file()


def test_undo_never_overwrites_a_new_file_of_the_same_name(desk: Desk, own: Path) -> None:
    path = tiny.write(own / "one.gguf")
    desk.start()
    desk.library.shelf.delete(path)
    desk.settle()
    path.write_bytes(b"GGUF new")
    desk.library.shelf.undo_delete()
    desk.settle()
    assert path.read_bytes() == b"GGUF new"
    assert desk.library_state.line.trouble


def test_what_a_crash_left_deleted_is_removed_by_the_next_start(
    desk: Desk, own: Path, tmp_path: Path
) -> None:
    left = own / ".one.gguf.tokonoma-deleted"
    other = own / ".hidden"
    left.touch()
    other.touch()
    desk.start()
    assert not left.exists()
    assert other.exists()


# --- downloads ----------------------------------------------------------------------------------


def test_a_download_is_offered_for_use_only_once_it_is_verified_and_looked_into(
    online: Desk, hub: Hub, own: Path, tmp_path: Path
) -> None:
    content = tiny.write(tmp_path / "tiny.gguf").read_bytes()
    stored = hub.put("owner/name/Tiny-F32.gguf", content)
    online.start()
    online.library.download(offer("Tiny-F32.gguf", len(content), stored.sha256))
    assert online.library_state.downloads[0].phase is not Phase.DONE
    until(lambda: online.library_state.line is not None)
    assert online.library_state.line.sentence == "Tiny is here."
    assert online.library_state.line.action == "Use"
    assert online.names() == ["Tiny-F32.gguf"]
    used: list[Path] = []
    online.library.use_requested.connect(used.append)
    online.library.act_on_line()
    assert used == [own / "Tiny-F32.gguf"]


def test_a_file_with_the_wrong_hash_never_reaches_the_list(
    online: Desk, hub: Hub, own: Path
) -> None:
    hub.put("owner/name/bad.gguf", b"GGUF" + bytes(4000))
    online.start()
    online.library.download(offer("bad.gguf", 4004, "0" * 64))
    until(lambda: online.library_state.downloads[0].phase is Phase.FAILED)
    assert online.library_state.downloads[0].error.endswith(".")
    online.library.opened()
    online.settle()
    assert online.names() == []
    online.library.cancel(online.library_state.downloads[0].id)
    assert online.library_state.downloads == ()


def test_a_verified_file_this_version_cannot_run_is_not_offered(
    online: Desk, hub: Hub, own: Path
) -> None:
    content = b"GGUF" + bytes(4000)
    stored = hub.put("owner/name/odd.gguf", content)
    online.start()
    online.library.download(offer("odd.gguf", len(content), stored.sha256))
    until(lambda: online.library_state.line is not None)
    assert "cannot be used" in online.library_state.line.sentence
    assert online.library_state.line.action == ""


def test_a_download_that_does_not_fit_on_the_disk_is_refused_with_the_numbers(
    online: Desk, hub: Hub, own: Path
) -> None:
    online.free = 1_100_000_000
    online.start()
    online.library.download(offer("big.gguf", 2_500_000_000))
    line = online.library_state.line
    assert "2.5 GB" in line.sentence
    assert "1.1 GB" in line.sentence
    assert line.trouble
    assert online.library_state.downloads == ()
    assert hub.asked == []


def test_room_promised_to_other_downloads_is_not_given_twice(
    online: Desk, hub: Hub, own: Path
) -> None:
    online.free = 10_000
    content = b"GGUF" + bytes(6000)
    hub.put("owner/name/a.gguf", content)
    hub.faults.append(Fault(stall_after=100))
    online.start()
    online.library.download(offer("a.gguf", len(content)))
    online.library.download(offer("b.gguf", 6000))
    assert len(online.library_state.downloads) == 1
    assert "on its way" in online.library_state.line.sentence
    hub.released.set()


def test_an_unfinished_download_is_taken_up_paused_by_the_next_start(
    qtbot: QtBot, hub: Hub, own: Path, tmp_path: Path
) -> None:
    content = tiny.write(tmp_path / "tiny.gguf").read_bytes()
    stored = hub.put("owner/name/Tiny-F32.gguf", content)
    hub.faults.append(Fault(stall_after=len(content) // 2))
    first = Desk(tmp_path, hub.endpoint)
    first.start()
    first.library.download(offer("Tiny-F32.gguf", len(content), stored.sha256))
    until(lambda: hub.stalled.is_set() and first.library_state.downloads[0].done_bytes > 0)
    first.close()
    hub.released.set()
    second = Desk(tmp_path, hub.endpoint)
    second.start()
    until(lambda: bool(second.library_state.downloads))
    (left,) = second.library_state.downloads
    assert left.phase is Phase.PAUSED
    second.library.resume(left.id)
    until(lambda: second.names() == ["Tiny-F32.gguf"])
    assert (own / "Tiny-F32.gguf").read_bytes() == content
    second.close()


# --- the hub ------------------------------------------------------------------------------------


def test_a_search_shows_repositories_and_the_files_of_the_one_that_is_opened(
    online: Desk, hub: Hub
) -> None:
    found(hub, "owner/Qwen3-GGUF")
    for form in ("Q4_K_M", "Q8_0", "IQ2_XS"):
        hub.put(f"owner/Qwen3-GGUF/Qwen3-{form}.gguf", b"GGUF" + bytes(1000 * len(form)))
    online.start()
    online.library.hub.search("qwen")
    assert online.library_state.hub.phase is HubPhase.ASKING
    until(lambda: online.library_state.hub.phase is HubPhase.ANSWERED)
    assert [row.id for row in online.library_state.hub.results] == ["owner/Qwen3-GGUF"]
    online.library.hub.open("owner/Qwen3-GGUF")
    until(lambda: online.library_state.hub.open_phase is HubPhase.ANSWERED)
    shown = [(each.format, each.recommended) for each in online.library_state.hub.files]
    assert shown == [("Q4_K_M", True), ("Q8_0", False), ("IQ2_XS", False)]
    assert "IQ2_XS" in online.library_state.hub.files[-1].problem
    online.library.hub.open("")
    assert online.library_state.hub.open == ""


def test_a_link_opens_its_repository_with_the_linked_file_first(online: Desk, hub: Hub) -> None:
    for form in ("Q4_K_M", "Q8_0"):
        hub.put(f"owner/name/Model-{form}.gguf", b"GGUF" + bytes(1000))
    online.start()
    online.library.hub.submit_link("https://huggingface.co/owner/name/blob/main/Model-Q8_0.gguf")
    until(lambda: online.library_state.hub.open_phase is HubPhase.ANSWERED)
    assert [each.format for each in online.library_state.hub.files] == ["Q8_0", "Q4_K_M"]


def test_a_link_that_leads_nowhere_says_why(desk: Desk) -> None:
    desk.library.hub.submit_link("https://example.org/readme.md")
    assert desk.library_state.hub.phase is HubPhase.FAILED
    assert desk.library_state.hub.remedy


def test_a_hub_that_cannot_be_reached_is_one_sentence_and_the_rest_goes_on(
    qtbot: QtBot, tmp_path: Path, hub: Hub, own: Path
) -> None:
    tiny.write(own / "own.gguf")
    hub.close()
    desk = Desk(tmp_path, hub.endpoint)
    desk.start()
    desk.library.hub.search("qwen")
    until(lambda: desk.library_state.hub.phase is HubPhase.FAILED)
    assert desk.library_state.hub.error.endswith(".")
    assert desk.names() == ["own.gguf"]
    desk.close()


def test_only_the_newest_question_is_answered(online: Desk, hub: Hub) -> None:
    hub.silent = True
    online.start()
    online.library.hub.search("alpha")
    until(hub.stalled.is_set)
    hub.silent = False
    found(hub, "owner/beta-GGUF")
    online.library.hub.search("beta")
    until(lambda: online.library_state.hub.phase is HubPhase.ANSWERED)
    hub.released.set()
    until(lambda: not online.library.hub._asking)
    assert online.library_state.hub.query == "beta"
    assert [row.id for row in online.library_state.hub.results] == ["owner/beta-GGUF"]


# --- the catalog and settings -------------------------------------------------------------------


def test_the_catalog_says_what_each_model_would_take(desk: Desk) -> None:
    desk.start()
    until(lambda: bool(desk.library_state.catalog))
    desk.library.opened()
    until(lambda: any(row.offer.memory for row in desk.library_state.catalog))
    for row in desk.library_state.catalog:
        assert (row.offer.memory is None) == bool(row.offer.problem)


def test_a_models_own_settings_are_kept_and_hold_in_the_place_of_all(
    desk: Desk, own: Path, tmp_path: Path
) -> None:
    path = tiny.write(own / "model.gguf", context=4096)
    desk.start()
    desk.library.look_into([path])
    until(lambda: desk.row("model.gguf").memory is not None)
    before = desk.row("model.gguf").memory
    values = ModelDefaults(context=512, temperature=0.25, cache=CacheType.Q8_0)
    desk.library.defaults.show(path)
    desk.library.defaults.change(path, values)
    until(lambda: (view := desk.library_state.defaults) is not None and view.memory is not None
          and view.memory.context == 512)  # fmt: skip
    until(lambda: desk.row("model.gguf").memory.context == 512)
    assert desk.row("model.gguf").memory.needed_bytes < before.needed_bytes
    assert desk.row("model.gguf").own_settings
    settings = desk.library.settings_for(path)
    assert (settings.context, settings.temperature) == (512, 0.25)
    assert desk.library.defaults_for(path).cache is CacheType.Q8_0
    assert desk.library.settings_for(None) == Settings()
    desk.settle()
    kept = Desk(tmp_path)
    kept.start()
    kept.settle()
    assert kept.library.defaults.own(path) == values
    kept.library.defaults.change(path, AS_IN_SETTINGS)
    kept.settle()
    assert json_file.read(tmp_path / "models.json")["defaults"] == {}
    kept.close()


def test_unloading_says_how_much_came_back(desk: Desk) -> None:
    desk.state.set_model(ModelStatus(freed_bytes=612_000_000))
    assert desk.library_state.line.sentence == "Unloaded, 612 MB given back."
    desk.state.set_model(ModelStatus(ModelPhase.LOADING, Path("/x.gguf"), "x"))
    assert desk.library_state.line is None


def test_closing_twice_or_before_the_start_does_no_harm(qtbot: QtBot, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.library.close()
    desk.close()
