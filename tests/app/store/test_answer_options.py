"""Answer options in the store: saved, removed with their conversation, salvaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.store.schema import RowNotFound
from app.store.store import Store
from app.store.unsent import unsent_of
from engine import Role


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store.open(path)) as made:
        yield made


def test_options_of_chats_and_of_the_new_one_are_kept(store: Store) -> None:
    assert store.answer_options() == {}
    first, second = (store.create_conversation(title).id for title in ("a", "b"))
    store.set_answer_options(first, "{1}")
    store.set_answer_options(second, "{2}")
    store.set_answer_options(None, "{0}")
    store.set_answer_options(second, "{3}")
    assert store.answer_options() == {0: "{0}", first: "{1}", second: "{3}"}
    store.set_answer_options(None, "")
    store.set_answer_options(first, "")
    assert store.answer_options() == {second: "{3}"}


def test_options_are_removed_with_their_chat(store: Store) -> None:
    made = store.create_conversation("a").id
    store.set_answer_options(made, "{1}")
    store.delete([made])
    assert store.answer_options() == {made: "{1}"}  # until it is purged
    store.purge([made])
    assert store.answer_options() == {}
    with pytest.raises(RowNotFound):
        store.set_answer_options(made, "{1}")


def test_a_text_that_sqlite_cannot_hold_is_cleaned(store: Store) -> None:
    store.set_answer_options(None, "a\ud800b")
    assert "a" in store.answer_options()[0]


def test_salvage_keeps_options_of_chats_that_are_left(store: Store, tmp_path: Path) -> None:
    made = store.create_conversation("Kept").id
    store.add_message(made, None, Role.USER, "A question")
    store.set_draft(made, unsent_of("A draft"))
    store.set_answer_options(made, '{"format": "json"}')
    store.set_answer_options(None, '{"format": "free"}')
    path = tmp_path / "conversations.sqlite"
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO answer_options VALUES (77, 1.0, 1, 'of none')")
    Store.salvage(path, tmp_path / "new.sqlite")
    with closing(Store.open(tmp_path / "new.sqlite")) as found:
        assert found.answer_options() == {0: '{"format": "free"}', made: '{"format": "json"}'}
        assert found.draft(made).text == "A draft"
