"""Collections in the store: kept, replaced, deleted, salvaged, and in files of older versions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.chat_settings import ChatSettings, changed_parts, settings_of, settings_text
from app.domain.collection import Collection
from app.store.schema import APPLICATION, MIGRATIONS, migrate, prepare
from app.store.store import Store

ONE = Collection(3, "One", ("/home/me/letters", "/home/me/a.pdf"), 1.0)
TWO = Collection(1 << 40, "Two \ufffd", ("/bytes\udcff",), 2.0)


def test_collections_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    with closing(Store.open(path)) as store:
        assert store.collections() == []
        store.write_collection(TWO)
        store.write_collection(ONE)
    with closing(Store.open(path)) as store:
        assert store.collections() == [ONE, TWO]
        changed = Collection(3, "Uno", ("/other",), 1.0)
        store.write_collection(changed)
        assert store.collections() == [changed, TWO]
        store.delete_collection(TWO.id)
        store.delete_collection(99)
        assert store.collections() == [changed]


def test_collections_survive_damage(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    with closing(Store.open(path)) as store:
        store.write_collection(ONE)
    Store.salvage(path, tmp_path / "other.sqlite")
    with closing(Store.open(tmp_path / "other.sqlite")) as store:
        assert store.collections() == [ONE]


@pytest.mark.parametrize("text", ["", "[", "{}", "[1, null, [], {}]", '"/path"'])
def test_wrong_sources_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "conversations.sqlite"
    with closing(Store.open(path)) as store:
        store.write_collection(ONE)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE collection SET sources = ?", (text,))
    with closing(Store.open(path)) as store:
        assert [(each.name, each.sources) for each in store.collections()] == [("One", ())]


def test_the_schema_before_has_none(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        prepare(database)
        migrate(database, next(n for n, each in enumerate(MIGRATIONS) if "collection (" in each))
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(
            "INSERT INTO conversation(id, title, folded, created, updated) VALUES (1, 'a', 'a', 1, 1)"
        )
    with closing(Store.open(path)) as store:
        assert store.collections() == []
        assert [each.title for each in store.conversations()] == ["a"]
        store.write_collection(ONE)
        assert store.collections() == [ONE]


def test_settings_of_a_chat_name_collections() -> None:
    settings = ChatSettings(collections=(5, 1 << 40))
    assert settings_of(settings_text(settings)) == settings
    assert changed_parts(settings) == {"collections"}
    odd = '{"collections": [5, "6", true, -1, null, 5, 7.5, 8]}'
    assert settings_of(odd).collections == (5, 8)
