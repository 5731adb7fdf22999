"""Databases recorded by earlier versions open with everything that those versions read from them."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.domain.chat_settings import ChatSettings, settings_of
from app.domain.message import Message, MessageState
from app.domain.parts import ErrorPart, Part, TextPart, ThoughtPart, prompt_text, search_text
from app.state.faults import explain
from app.store.part_rows import from_row
from app.store.schema import MIGRATIONS
from app.store.store import Store, StoreError
from engine import FaultKind, Role
from store_contents import all_messages

ROOT = Path(__file__).parents[3]
OLD = Path(__file__).parent / "old"
NAMES = ("schema-2", "schema-4", "schema-6", "schema-7", "schema-8", "schema-10")
WITH_PARTS = NAMES[3:]
SAME = (
    "id", "conversation", "parent", "created", "model", "prompt_tokens", "generated_tokens",
    "seconds", "sibling", "siblings",
)  # fmt: skip
pytestmark = pytest.mark.parametrize("name", NAMES)


def unpacked(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The recorded file, and what its version read from it."""
    path = folder / "conversations.sqlite"
    path.write_bytes(gzip.decompress((OLD / f"{name}.sqlite.gz").read_bytes()))
    return path, json.loads((OLD / f"{name}.json").read_text(encoding="utf-8"))


def compare(store: Store, held: dict[str, Any]) -> None:
    """Compare a store with all that was recorded."""
    conversations = store.conversations()
    assert [
        {"id": c.id, "title": c.title, "created": c.created, "updated": c.updated}
        for c in conversations
    ] == [{k: v for k, v in c.items() if k != "policy"} for c in held["conversations"]]
    for now, before in zip(conversations, held["conversations"], strict=True):
        assert now.settings.policy.value == before.get("policy", "drop oldest")
    for number, ids in held["shown"].items():
        assert [m.id for m in store.branch(int(number))] == ids
    for number, text in held["drafts"].items():
        assert store.draft(int(number) or None).text == text
    messages = all_messages(store)
    assert sorted(messages) == sorted(map(int, held["messages"]))
    for number, before in held["messages"].items():
        compare_message(messages[int(number)], before)
    for query, ids in held["search"].items():
        if query != "think":  # the tags were searched, too
            assert [c.id for c in store.conversations(query)] == ids
    compare_adapters(store, held)
    compare_options(store, held)


def settings_by_chat(store: Store) -> dict[str, ChatSettings]:
    """By id, 0 for the new chat."""
    kept = {str(c.id): c.settings for c in store.conversations()}
    return kept | {"0": settings_of(store.new_chat_settings())}


def compare_options(store: Store, held: dict[str, Any]) -> None:
    """What was a chat's options is now in its settings."""
    options: dict[str, Any] = held.get("options", {})
    for number, now in settings_by_chat(store).items():
        before = options.get(number, {})
        assert now.sampling == before.get("sampling", {})
        assert now.format.value == before.get("format", "free")
        assert now.texts == before.get("texts", {})
        assert now.thinking.value == before.get("thinking", "usual")
        assert now.thinking_budget == before.get("thinking_budget", 1024)


def compare_message(now: Message, before: dict[str, Any]) -> None:
    assert now.text == before["text"]  # to the last character
    assert (now.role.value, now.state.value) == (before["role"], before["state"])
    assert {key: getattr(now, key) for key in SAME} == {key: before[key] for key in SAME}
    thought = now.role.value == "assistant" and before["text"].lstrip().startswith("<think>")
    assert any(isinstance(part, ThoughtPart) for part in now.parts) is thought
    assert "<think>" not in search_text(now.parts) or "a tag" in before["text"]
    if now.state is MessageState.FAILED:
        assert (now.stop, now.error is not None) == ("", bool(before["error"]))
        if now.error is not None:
            compare_error(now.error, before["error"])
    else:
        assert (now.stop, now.error) == (before["error"], None)
    marks = [{"name": m.name, "strength": m.strength, "sha256": m.sha256} for m in now.adapters]
    assert marks == list(before.get("adapters", ()))


def compare_error(now: ErrorPart, before: str) -> None:
    if not before.startswith("{"):
        assert now == ErrorPart(message=before)
        return
    assert now.fault.kind is FaultKind.CHAT_FULL
    assert now.fault.most_context == 4096
    shown = explain(now.fault, now.file, now.message, now.remedy)
    assert shown.sentence == "This chat is full (4,096 tokens)."
    assert shown.detail == "The prompt has 5,000 tokens. Shorten it."


def compare_adapters(store: Store, held: dict[str, Any]) -> None:
    if "adapters" in held:
        kept = store.adapters()
        stacks = {n: settings.adapters for n, settings in settings_by_chat(store).items()}
        before = held["adapters"]["stacks"]
        assert {
            number: [(use.path.as_posix(), use.on, use.strength) for use in uses]
            for number, uses in stacks.items()
            if uses
        } == {
            number: [(use["path"], use["on"], use["strength"]) for use in uses]
            for number, uses in before.items()
        }
        assert list(kept.mixes) == list(held["adapters"]["mixes"])
    trash = [each.title for each in store.trash()]
    assert trash == [each["title"] for each in held.get("trash", [{"title": "A gone chat"}])]


OPEN = """
import sys
from pathlib import Path
from app.store.store import (Store)
print("ready", flush=True)
Store.open(Path(sys.argv[1])).close()
"""


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    with closing(Store.open(path)) as store:
        yield store


def test_everything_is_there_after_the_migration(name: str, tmp_path: Path) -> None:
    path, held = unpacked(name, tmp_path)
    with opened(path) as store:
        compare(store, held)
        gone = store.trash()[0].id
        store.restore([gone])
        assert [m.text for m in store.branch(gone)] == ["This is gone."]
    with opened(path) as store:
        assert [m.parts for m in store.branch(gone)] == [(TextPart("This is gone."),)]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM chunk").fetchone() == (0,)


def test_everything_is_there_without_write_access(name: str, tmp_path: Path) -> None:
    path, held = unpacked(name, tmp_path)
    content = path.read_bytes()
    with closing(Store.open_copy(path)) as store:
        compare(store, held)
    assert path.read_bytes() == content


def test_everything_is_there_after_a_salvage(name: str, tmp_path: Path) -> None:
    path, held = unpacked(name, tmp_path)
    counts = Store.salvage(path, tmp_path / "salvaged.sqlite")
    assert counts.partly == 0
    with opened(tmp_path / "salvaged.sqlite") as store:
        compare(store, held)


def test_a_migrated_store_is_salvaged_with_its_parts(name: str, tmp_path: Path) -> None:
    path, held = unpacked(name, tmp_path)
    Store.open(path).close()
    assert Store.salvage(path, tmp_path / "salvaged.sqlite").partly == 0
    with opened(tmp_path / "salvaged.sqlite") as store:
        compare(store, held)


@pytest.mark.parametrize("lost", ["the first page", "a page", "bytes"])
def test_what_is_left_of_a_damaged_store_is_salvaged(name: str, lost: str, tmp_path: Path) -> None:
    """The version is found in the rows if the first page is lost, and the values keep their columns."""
    path, held = unpacked(name, tmp_path)
    content, same = path.read_bytes(), 0
    seeds = range(1 if lost == "the first page" else 3)
    for seed in seeds:
        chance, damaged = random.Random(seed), bytearray(content)
        if lost == "bytes":
            for _ in range(20):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        else:
            page = 0 if lost == "the first page" else chance.randrange(len(damaged) // 4096)
            damaged[page * 4096 : (page + 1) * 4096] = bytes(4096)
        path.write_bytes(damaged)
        new = tmp_path / f"{seed}.sqlite"
        Store.salvage(path, new)
        with opened(new) as store:
            now = all_messages(store)
            assert {*map(int, held["messages"])} <= {*now}
            exact = sum(now[int(n)].text == m["text"] for n, m in held["messages"].items())
            read = store._database.execute
            assert read("PRAGMA foreign_key_check").fetchall() == []
            assert read("PRAGMA integrity_check").fetchall() == [("ok",)]
        same += exact
        assert exact == len(held["messages"]) or lost != "the first page"
    assert same > len(seeds) * len(held["messages"]) * 0.6


def test_a_message_deleted_before_is_restored(name: str, tmp_path: Path) -> None:
    path, _ = unpacked(name, tmp_path)
    if name == "schema-2":
        pytest.skip("single messages could not be deleted")
    with closing(sqlite3.connect(path)) as database:
        number, content = database.execute("SELECT id, content FROM deleted_message").fetchone()
    before = json.loads(content)
    error = before.get("error", "")
    if name in WITH_PARTS:
        kept = [from_row(*row) for row in before["parts"]]
        before["text"] = prompt_text(kept)
        error = "{" if any(isinstance(part, ErrorPart) for part in kept) else ""
    with opened(path) as store:
        store.restore_message(number)
        now = all_messages(store)[number]
        assert now.text == before["text"]
        assert (now.compared, now.undecided) == (0, False)
        assert isinstance(now.parts[0], ThoughtPart)
        assert now.error is not None
        assert error.startswith("{") == (now.error.fault.kind is FaultKind.CHAT_FULL)
        assert [c.title for c in store.conversations("scatters")] == [
            "With a deleted answer",
            "Why is the sky blue?",
        ]


def test_new_messages_get_ids_that_were_never_used(name: str, tmp_path: Path) -> None:
    path, _ = unpacked(name, tmp_path)
    with closing(sqlite3.connect(path)) as database:
        last = [row[0] for row in database.execute("SELECT seq FROM sqlite_sequence")]
    with opened(path) as store:
        begun = store.create_conversation("New").id
        assert max(last) < begun < store.add_message(begun, None, Role.USER, "x").id


def test_a_migration_that_fails_can_be_repeated(name: str, tmp_path: Path) -> None:
    path, held = unpacked(name, tmp_path)
    begin, end = {
        "schema-7": (
            "ALTER TABLE message ADD COLUMN undecided",
            "ALTER TABLE message DROP COLUMN undecided",
        ),
        "schema-8": ("CREATE TABLE answer_options(in_the_way)", "DROP TABLE answer_options"),
        "schema-10": ("CREATE TABLE record(in_the_way)", "DROP TABLE record"),
    }.get(name, ("CREATE TABLE part(in_the_way)", "DROP TABLE part"))
    with closing(sqlite3.connect(path)) as database:
        database.execute(begin)
    with pytest.raises(StoreError):
        Store.open(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(end)
    with opened(path) as store:
        compare(store, held)


@pytest.mark.slow
def test_a_migration_that_is_killed_loses_nothing(name: str, tmp_path: Path) -> None:
    if name in WITH_PARTS:
        pytest.skip("no later migration changes the rows of messages")
    path, _ = unpacked(name, tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            "INSERT INTO message(conversation, parent, role, state, created, text)"
            " VALUES (2, NULL, 'assistant', 'complete', 1.0, ?)",
            [(f"<think>{number}</think>\n" + "long " * 200,) for number in range(2000)],
        )
        held = dict(database.execute("SELECT id, text FROM message WHERE state <> 'streaming'"))
    chance, content = random.Random(7), path.read_bytes()
    versions: set[int] = set()
    for _ in range(8):
        for left in tmp_path.iterdir():
            left.unlink()
        path.write_bytes(content)
        child = subprocess.Popen(
            [sys.executable, "-c", OPEN, str(path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.4))
        child.kill()
        child.wait()
        child.stdout.close()
        with closing(sqlite3.connect(path)) as database:
            versions.add(database.execute("PRAGMA user_version").fetchone()[0])
        Store.open(path).close()
        with closing(sqlite3.connect(path)) as database:
            parts: dict[int, list[Part]] = {}
            for message, *row in database.execute(
                "SELECT message, kind, data, text FROM part ORDER BY message, id"
            ):
                parts.setdefault(message, []).append(from_row(*row))
        now = {number: prompt_text(parts.get(number, ())) for number in held}
        assert now == held
    assert min(versions) < len(MIGRATIONS)
