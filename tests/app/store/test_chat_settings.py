"""Settings of chats in the store: one record each, kept with its chat, and migrated."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.chat_settings import (
    AdapterChoice,
    AnswerFormat,
    ChatSettings,
    settings_of,
    settings_text,
)
from app.settings.samplers import Thinking
from app.store.schema import APPLICATION, MIGRATIONS, RowNotFound, migrate
from app.store.store import Store
from app.system.text_search import normalize
from engine import ContextPolicy

FIRST = ChatSettings(instructions="Answer in French.", stop=("###",))
SECOND = ChatSettings(policy=ContextPolicy.STOP)


def kept(store: Store) -> dict[str, ChatSettings]:
    return {row.title: row.settings for row in store.conversations()}


def test_settings_of_chats_and_of_the_new_one_are_kept(store: Store) -> None:
    first, second = (store.create_conversation(title).id for title in ("a", "b"))
    assert kept(store) == {"a": ChatSettings(), "b": ChatSettings()}
    store.set_settings(first, settings_text(FIRST))
    store.set_settings(second, settings_text(FIRST))
    store.set_settings(second, settings_text(SECOND))
    store.set_settings(None, settings_text(FIRST))
    assert kept(store) == {"a": FIRST, "b": SECOND}
    assert settings_of(store.new_chat_settings()) == FIRST
    store.set_settings(None, "")
    assert store.new_chat_settings() == ""


def test_settings_go_with_their_chat(store: Store) -> None:
    made = store.create_conversation("a", settings_text(FIRST)).id
    store.delete([made])
    store.restore([made])
    assert kept(store) == {"a": FIRST}
    store.delete([made])
    store.purge([made])
    with pytest.raises(RowNotFound):
        store.set_settings(made, settings_text(FIRST))


def test_a_text_that_sqlite_cannot_hold_is_cleaned(store: Store) -> None:
    store.set_settings(None, "a\ud800b")
    assert store.new_chat_settings() == "a\ufffdb"


def test_settings_of_the_schema_before_become_one_record(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.create_function("fold", 1, normalize)
        migrate(database, 10)
        database.executescript(f"""
            INSERT INTO conversation(id, title, folded, created, updated, policy) VALUES
                (1, 'all', 'all', 1, 1, 'stop'), (2, 'none', 'none', 1, 1, 'drop oldest'),
                (3, 'damaged', 'damaged', 1, 1, '');
            INSERT INTO answer_options VALUES
                (0, 1, 1, '{{"thinking": "off"}}'),
                (1, 1, 1, '{{"sampling": {{"seed": 7}}, "format": "json", "texts": {{}}}}'),
                (3, 1, 1, '[');
            INSERT INTO adapter_use VALUES
                (0, 0, '/of the new chat', 1, 0.5),
                (1, 0, '/first', 1, 1.0), (1, 1, '/second', 0, -0.5);
            PRAGMA application_id = {APPLICATION};
        """)
    with closing(Store.open(path)) as store:
        assert kept(store) == {
            "all": ChatSettings(
                sampling={"seed": 7},
                format=AnswerFormat.JSON,
                policy=ContextPolicy.STOP,
                adapters=(
                    AdapterChoice(Path("/first")),
                    AdapterChoice(Path("/second"), on=False, strength=-0.5),
                ),
            ),
            "none": ChatSettings(),
            "damaged": ChatSettings(),
        }
        new = settings_of(store.new_chat_settings())
    assert new.thinking is Thinking.OFF
    assert new.adapters == (AdapterChoice(Path("/of the new chat"), strength=0.5),)
    with closing(sqlite3.connect(path)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        assert not names & {"answer_options", "adapter_use", "conversation_options"}
    assert len(MIGRATIONS) >= 11


def test_odd_options_of_the_schema_before_keep_no_store_closed(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.create_function("fold", 1, normalize)
        migrate(database, 10)
        database.executescript(f"""
            INSERT INTO conversation(id, title, folded, created, updated) VALUES
                (1, 'half a character', '', 1, 1), (2, 'another type', '', 1, 1);
            INSERT INTO answer_options VALUES
                (0, 1, 1, '{{"texts": {{"choices": "a\\ud800"}}, "format": "choices"}}'),
                (1, 1, 1, '{{"texts": {{"choices": "a\\ud800"}}, "format": "choices"}}'),
                (2, 1, 1, '{{"adapters": 5, "version": "x", "thinking": "on"}}');
            INSERT INTO adapter_use VALUES (2, 0, '/first', 1, 1.0);
            DROP TRIGGER conversation_options;
            PRAGMA application_id = {APPLICATION};
        """)
    choices = ChatSettings().with_format(AnswerFormat.CHOICES, "a\ufffd")
    with closing(Store.open(path)) as store:
        adapters = (AdapterChoice(Path("/first")),)
        assert kept(store) == {
            "half a character": choices,
            "another type": ChatSettings(thinking=Thinking.ON, adapters=adapters),
        }
        assert settings_of(store.new_chat_settings()) == choices
