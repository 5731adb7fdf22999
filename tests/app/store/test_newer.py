"""Stores of a newer version: they are read and exported, and never changed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.transfer import ExportFormat
from app.store.schema import MIGRATIONS, DamagedStore, NewerStore, StoreError
from app.store.store import Store
from engine import Role
from fakes import MODEL
from stage import Stage, until

# What a later version may do: more columns, tables, roles, states and kinds of parts, and less.
CHANGES = {
    "only the number": "",
    "more columns": """
        ALTER TABLE message ADD COLUMN cost REAL NOT NULL DEFAULT 0;
        ALTER TABLE conversation ADD COLUMN colour TEXT NOT NULL DEFAULT 'moss';
        CREATE TABLE tool (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
        INSERT INTO tool VALUES (1, 'clock');
    """,
    "dropped columns": """
        ALTER TABLE message DROP COLUMN details;
        ALTER TABLE message DROP COLUMN used;
        DROP TABLE record;
        DROP TABLE snippet;
    """,
    "another search": "DROP TRIGGER message_search; DROP TABLE search;",
    "new values": """
        UPDATE message SET role = 'tool', state = 'waiting' WHERE id = (SELECT max(id) FROM message);
        INSERT INTO part(message, kind, data, text)
            SELECT max(id), 'hologram', '{"angle": 7}', 'seen from the left' FROM message;
    """,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a chat of two messages, an empty one, and a saved prompt."""
    path = tmp_path / "conversations.sqlite"
    store = Store.open(path)
    made = store.create_conversation(
        "From the future", '{"version": 1, "instructions": "Be brief."}'
    )
    own = store.add_message(made.id, None, Role.USER, "Why is the sky blue?")
    store.add_message(made.id, own.id, Role.ASSISTANT, "Because of Rayleigh.")
    store.create_conversation("Nothing yet")
    store.close()
    return path


def age(path: Path, script: str = "") -> None:
    """Make the file one that a version with one more migration saved."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(script)
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        database.execute("PRAGMA journal_mode = DELETE")


def files(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file() and each.suffix != ".lock")
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


@pytest.mark.parametrize("script", CHANGES.values(), ids=CHANGES.keys())
def test_newer_store_is_read_and_not_changed(path: Path, script: str) -> None:
    age(path, script)
    before = files(path.parent)
    with pytest.raises(NewerStore, match="newer version"):
        Store.open(path)
    with closing(Store.open_copy(path)) as store:
        chats = {each.title: each for each in store.conversations()}
        assert set(chats) == {"From the future", "Nothing yet"}
        chat = chats["From the future"]
        assert chat.settings.instructions == "Be brief."
        question, answer = store.branch(chat.id)
        assert question.text == "Why is the sky blue?"
        assert answer.text.startswith("Because of Rayleigh.")
        assert answer.role is Role.ASSISTANT
        assert [each.id for each in store.conversations("rayleigh")] == [chat.id]
        store.rename(chat.id, "Only in the copy")
    assert files(path.parent) == before


def test_newer_store_without_known_chats_is_refused_in_one_sentence(path: Path) -> None:
    age(path, "ALTER TABLE message RENAME COLUMN role TO author")
    before = files(path.parent)
    with pytest.raises(StoreError, match="in a form that this one lacks") as raised:
        Store.open_copy(path)
    assert raised.value.remedy.startswith("Update Tokonoma")
    assert files(path.parent) == before


def test_damaged_newer_store_is_called_damaged(path: Path) -> None:
    age(path)
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xaa" * 4096 + content[12288:])
    with pytest.raises((DamagedStore, NewerStore)):
        Store.open(path)
    with pytest.raises(DamagedStore):
        Store.open_copy(path)


def test_rows_that_a_newer_version_left_in_the_log_are_read(path: Path, tmp_path: Path) -> None:
    age(path)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("UPDATE conversation SET title = 'In the log' WHERE title = 'Nothing yet'")
    with closing(Store.open_copy(path)) as store:
        assert {each.title for each in store.conversations()} == {"From the future", "In the log"}
    database.close()


def test_window_shows_a_newer_store_and_exports_it(
    qtbot: object,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "home"))
    age(path, CHANGES["new values"])
    before = files(path.parent)
    stage = Stage(path.parent)
    ended: list[bool] = []
    stage.controller.may_quit.connect(lambda: ended.append(True))
    try:
        stage.ready(MODEL)
        until(lambda: len(stage.state.conversations) == 2)
        notice = stage.state.notices["newer store"]
        assert "read and exported" in notice.sentence
        assert notice.action == "Export all chats"
        chat = next(c for c in stage.state.conversations if c.title == "From the future")
        stage.controller.open_conversation(chat.id)
        until(lambda: bool(stage.state.messages))
        target = tmp_path / "chats.json"
        stage.controller.transfer.all_chats(
            lambda ids: stage.controller.transfer.export_chats(ids, ExportFormat.JSON, target)
        )
        until(target.exists)
        until(lambda: not stage.controller.transfer.busy)
        exported = json.loads(target.read_text(encoding="utf-8"))
        assert {each["title"] for each in exported["chats"]} == {"From the future", "Nothing yet"}
        assert "seen from the left" in target.read_text(encoding="utf-8")
        stage.controller.ask_to_quit()
        until(lambda: bool(ended) or "quit" in stage.state.notices)
        assert ended  # nothing was written, so nothing is lost
    finally:
        stage.close()
    now = files(path.parent)
    assert {name: now[name] for name in before} == before
