"""Files that a newer version wrote: what this one does not know of them is kept when it writes."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import unicodedata
from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.documents import index_file
from app.documents.index import DocumentIndex
from app.documents.known_files import KnownFiles
from app.domain.collection import CollectionFile, FileState
from app.domain.presets import preset_of, preset_text
from app.downloads.entry import Entry
from app.downloads.journal import NAME, read_queue, rows_of, write_rows
from app.downloads.partial import sidecar_path
from app.downloads.policy import Phase
from app.engines.remote.connections import ConnectionStore
from app.engines.remote.keys import KeyStore
from app.library import folders, trash
from app.net.hub import HUB, Source
from app.net.ledger import Ledger, Purpose
from app.settings import model_settings, table
from app.settings.model_settings import ModelDefaults
from app.ui.placement import Placement
from engine import snapshots_folder
from engine.state.disk import sequence_file
from engine.state.disk.atomic import NewerVersion
from engine.state.disk.store import PageStore
from saved_pages import Saves, page_files, words


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def stored(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())


# --- settings ------------------------------------------------------------------------------------


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Warnings about values that this version does not know are expected."""


NEWER = {"theme": "sepia", "zoom": 400, "language": "eo", "wallpaper": {"name": "bamboo"}}


@pytest.mark.usefixtures("quiet")
def test_settings_of_a_newer_version_survive_changes_by_this_one(tmp_path: Path) -> None:
    path = written(tmp_path / "settings.json", NEWER)
    loaded = table.load(path)
    assert (loaded.theme, loaded.zoom, loaded.language) == ("system", 100, "")
    table.save(path, replace(loaded, notify="off"))
    assert {name: stored(path)[name] for name in NEWER} == NEWER
    assert stored(path)["notify"] == "off"
    table.save(path, replace(table.load(path), theme="dark"))  # the user's choice counts
    assert stored(path)["theme"] == "dark"
    assert stored(path)["zoom"] == 400


def test_settings_of_models_keep_what_only_a_newer_version_knows(tmp_path: Path) -> None:
    newer = {"cache": "q2_9", "context": 4096, "mirostat": [2, 5.0]}
    one, other = Path("/m/a.gguf"), Path("/m/b.gguf")
    path = written(
        tmp_path / "models.json", {"defaults": {str(one): newer, str(other): {"mirostat": 1}}}
    )
    loaded = model_settings.load(path)
    assert loaded == {one: ModelDefaults(context=4096)}
    model_settings.save(path, {one: ModelDefaults(top_k=7)})
    assert stored(path)["defaults"] == {
        str(one): {"cache": "q2_9", "mirostat": [2, 5.0], "top_k": 7},
        str(other): {"mirostat": 1},
    }


def test_presets_keep_keys_of_a_newer_version() -> None:
    text = json.dumps({"parts": [], "settings": {"version": 1, "tone": "dry"}, "icon": "fish"})
    preset = preset_of(2000, "Fishy", text)
    again = json.loads(preset_text(replace(preset, description="Changed")))
    assert (again["icon"], again["settings"]["tone"]) == ("fish", "dry")
    assert again["description"] == "Changed"


def test_places_of_models_keep_keys_of_a_newer_version(tmp_path: Path) -> None:
    path = written(tmp_path / "library.json", {"folders": [str(tmp_path)], "servers": ["x"]})
    folders.save(path, folders.load(path))
    assert stored(path) == {"folders": [str(tmp_path)], "files": [], "servers": ["x"]}


def test_deleted_models_of_a_newer_version_can_be_restored(tmp_path: Path) -> None:
    model, aside = tmp_path / "a.gguf", tmp_path / ".a.gguf.tokonoma-deleted"
    aside.write_bytes(b"GGUF")
    row = {"path": str(model), "name": "A", "size_bytes": 4, "deleted": 1.0, "colour": "moss",
           "files": [[str(model), str(aside)]]}  # fmt: skip
    path = written(tmp_path / "deleted-models.json", {"models": [row, {"bundle": [1]}], "v": 2})
    found = trash.read(path, [tmp_path], 2.0)
    assert [each.moves for each in found] == [((model, aside),)]
    trash.write(path, found)
    assert stored(path)["v"] == 2
    written(path, {"models": {"of": "another form"}})  # then the hidden files themselves are found
    assert [each.moves for each in trash.read(path, [tmp_path], 2.0)] == [((model, aside),)]


def test_a_place_of_the_window_of_a_newer_version_is_the_usual_one(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(500, 400)
    newer = bytearray(window.saveGeometry().data())
    newer[4:6] = (99).to_bytes(2, "big")  # the major version of Qt's format
    for text in (b64encode(newer).decode("ascii"), "{}", "newer: 1"):
        Placement(window).restore(text)
        assert (window.width(), window.height()) == (500, 400)


# --- connections ---------------------------------------------------------------------------------


def contact(**more: object) -> dict[str, object]:
    times = {"first": 1.0, "last": 2.0, "sent_bytes": 0, "received_bytes": 9, "refused": 0}
    return {"host": "a.example", "port": 443, "purpose": "download", "count": 1, **times, **more}


def test_contacts_of_a_newer_version_are_shown_or_kept(tmp_path: Path) -> None:
    call = contact(host="b.example", purpose="telephone")
    path = written(
        tmp_path / "contacts.json", {"contacts": [contact(protocol="h3"), call, {"purpose": "?"}]}
    )
    ledger = Ledger()
    ledger.open(path)
    assert [each.host for each in ledger.all()] == ["a.example"]
    ledger.record(("a.example", 443, Purpose.DOWNLOAD), count=1)
    ledger.close()
    rows = stored(path)["contacts"]
    assert call in rows
    assert [row["count"] for row in rows if row["host"] == "a.example"] == [2]


def test_clearing_the_contacts_forgets_those_of_a_newer_version(tmp_path: Path) -> None:
    path = written(tmp_path / "contacts.json", {"contacts": [contact(purpose="telephone")]})
    ledger = Ledger()
    ledger.open(path)
    ledger.clear()
    ledger.close()
    assert stored(path)["contacts"] == []


@pytest.mark.usefixtures("quiet")
def test_connections_of_a_newer_version_are_kept(tmp_path: Path) -> None:
    other = {"id": "two", "socket": "/run/engine.sock"}  # a form without an address
    known = {"id": "one", "address": "http://127.0.0.1:9/v1", "kind": "grpc", "colour": "moss"}
    path = written(tmp_path / "c.json", {"version": 2, "connections": [known, other]})
    keys = KeyStore(tmp_path / "keys.json")
    store = ConnectionStore(path, keys)
    store.update("one", name="Mine")
    rows = {row["id"]: row for row in stored(path)["connections"]}
    assert rows["two"] == other
    assert (rows["one"]["kind"], rows["one"]["colour"]) == ("grpc", "moss")
    assert rows["one"]["name"] == "Mine"


def test_keys_of_a_newer_version_stay_in_their_file(tmp_path: Path) -> None:
    path = written(tmp_path / "keys.json", {"new": {"token": "x"}, "old": '{"key": "k"}'})

    def no_keyring() -> Any:
        raise RuntimeError("none here")

    KeyStore(path, no_keyring).delete("old")
    assert stored(path) == {"new": {"token": "x"}}


# --- downloads, indexes, snapshots ---------------------------------------------------------------


def test_downloads_of_a_newer_version_are_left_alone_and_their_parts_found(tmp_path: Path) -> None:
    journal = written(tmp_path / NAME, {"version": 2, "downloads": [{"torrent": "x"}]})
    before = journal.read_bytes()
    url = f"{HUB}/a/b/resolve/main/model.gguf"
    part = tmp_path / "model.gguf"
    part.with_name("model.gguf.part").write_bytes(b"GGUF")
    written(sidecar_path(part), {"url": url, "done_bytes": 4, "size_bytes": 9, "peers": [1]})
    found = read_queue(tmp_path, HUB)
    assert [(each.phase, each.source.file) for each in found] == [(Phase.PAUSED, "model.gguf")]
    added = Entry(0, Source("a/b", "main", "c.gguf"), tmp_path / "c.gguf")
    write_rows(tmp_path, rows_of(tmp_path, [*found, added]))
    assert journal.read_bytes() == before


def test_an_index_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    index = DocumentIndex(path)
    index.add("mine", "Notice is three months.")
    index.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("UPDATE state SET value = '9 99.0.0' WHERE name = 'version'")
    index = DocumentIndex(path)
    assert index.keys() == set()
    assert index.lost == 1
    index.add("again", "Notice is a quarter of a year.")
    assert len(index.search("notice")) == 1
    index.close()
    own = tmp_path / f"documents.v{index_file.VERSION}.sqlite"
    assert own.exists()
    with closing(sqlite3.connect(path, isolation_level=None)) as base:  # as if it were ours again
        assert base.execute("SELECT value FROM state").fetchall() == [("9 99.0.0",)]
        base.execute(
            "UPDATE state SET value = ? WHERE name = 'version'",
            (f"{index_file.VERSION} {unicodedata.unidata_version}",),
        )
    index = DocumentIndex(path)
    assert index.keys() == {"mine"}
    index.close()
    assert not own.exists()


def test_known_files_of_a_newer_version_are_left_alone(tmp_path: Path) -> None:
    path, file = tmp_path / "collections.sqlite", CollectionFile("/a", 1, 1, "", FileState.READY)
    newer, older = KnownFiles(path, 8), KnownFiles(path, 7)
    newer.write([file])
    newer.close()
    assert older.read() == {}
    older.write([replace(file, path="/b")])
    assert set(older.read()) == {"/b"}
    older.close()
    assert set(newer.read()) == {"/a"}
    newer.close()
    assert [each.name for each in tmp_path.glob("*.sqlite")] == ["collections.sqlite"]


def test_snapshots_of_a_newer_version_keep_their_pages() -> None:
    store = PageStore(snapshots_folder())
    saves = Saves(store)
    newer = saves.save(words(500, seed=1), "newer")
    whole = newer.path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = {**json.loads(whole[8 : 8 + length]), "version": sequence_file.VERSION + 1}
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + whole[8 + length : -32]
    newer.path.write_bytes(body + hashlib.sha256(body).digest())
    pages = page_files()
    saves.save(words(500, seed=2), "mine")
    fresh = PageStore(snapshots_folder())
    fresh.collect()
    assert pages <= page_files()
    (fault,) = [each.fault for each in fresh.sequences() if each.fault]
    assert isinstance(fault, NewerVersion)
    assert newer.path.exists()
