"""Deleting one message: the rest of the tree stays, and restoring brings back every row as it was."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.store.schema import RowNotFound
from app.store.store import Store
from engine import Role

USER, ASSISTANT = Role.USER, Role.ASSISTANT
ROOT = Path(__file__).parents[3]
DELETE_AND_RESTORE = """
import sys
from pathlib import Path
from app.store.store import (Store)
store = Store.open(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    store.delete_message(int(sys.argv[2]))
    store.restore_message(int(sys.argv[2]))
"""


def rows(path: Path) -> list[tuple[object, ...]]:
    """All messages with their parts, search entries, and the shown leaves."""
    with closing(sqlite3.connect(path)) as database:
        messages = "SELECT * FROM message ORDER BY id"
        searched = "SELECT rowid, folded FROM search ORDER BY rowid"
        parts = "SELECT message, kind, data, text FROM part ORDER BY message, id"
        leaves = "SELECT id, leaf FROM conversation"
        return [
            row for query in (messages, parts, searched, leaves) for row in database.execute(query)
        ]


def without_use(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The rows without the turn in which a message was last the leaf, which showing it changes."""
    return [row[:10] + row[11:] if len(row) > 4 else row for row in found]


def chat(store: Store) -> tuple[int, list[int]]:
    """A conversation of two questions with their answers."""
    conversation = store.create_conversation("Chat").id
    ids: list[int] = []
    for text, role in (("q1", USER), ("a1", ASSISTANT), ("q2", USER), ("a2", ASSISTANT)):
        parent = ids[-1] if ids else None
        ids.append(store.add_message(conversation, parent, role, text).id)
    return conversation, ids


def texts(store: Store, conversation: int) -> list[str]:
    return [message.text for message in store.branch(conversation)]


@pytest.mark.parametrize("place", range(4))
def test_what_follows_a_deleted_message_stays_and_restoring_is_exact(
    path: Path, store: Store, place: int
) -> None:
    conversation, ids = chat(store)
    before, whole = rows(path), texts(store, conversation)
    store.delete_message(ids[place])
    assert texts(store, conversation) == whole[:place] + whole[place + 1 :]
    assert store.conversations(whole[place]) == []
    store.restore_message(ids[place])
    assert without_use(rows(path)) == without_use(before)


def test_deleting_an_answer_shows_its_other_version(store: Store) -> None:
    conversation, ids = chat(store)
    other = store.add_message(conversation, ids[2], ASSISTANT, "a2 again").id
    store.delete_message(other)
    assert texts(store, conversation) == ["q1", "a1", "q2", "a2"]
    assert store.branch(conversation)[-1].siblings == 1
    store.restore_message(other)
    assert texts(store, conversation)[-1] == "a2 again"
    assert store.branch(conversation)[-1].siblings == 2


def test_all_branches_below_a_deleted_message_are_kept(store: Store) -> None:
    conversation, ids = chat(store)
    store.add_message(conversation, ids[1], USER, "q2 edited")
    store.delete_message(ids[1])
    assert texts(store, conversation) == ["q1", "q2 edited"]
    store.select_sibling(store.branch(conversation)[-1].id, -1)
    assert texts(store, conversation) == ["q1", "q2", "a2"]


def test_the_only_message_can_be_deleted_and_restored_after_a_restart(path: Path) -> None:
    store = Store.open(path)
    conversation = store.create_conversation("Chat").id
    only = store.add_message(conversation, None, USER, "only").id
    store.delete_message(only)
    assert store.branch(conversation) == []
    store.close()
    store = Store.open(path)
    store.restore_message(only)
    assert texts(store, conversation) == ["only"]
    with pytest.raises(RowNotFound):
        store.restore_message(only)
    store.close()


def test_deleted_messages_go_with_their_conversation_and_after_their_time(store: Store) -> None:
    conversation, ids = chat(store)
    store.delete_message(ids[0])
    store.purge_deleted(older_than_seconds=3600)
    store.restore_message(ids[0])
    store.delete_message(ids[0])
    store.purge_deleted(older_than_seconds=-1)
    with pytest.raises(RowNotFound):
        store.restore_message(ids[0])
    store.delete_message(ids[1])
    store.delete([conversation])
    store.purge([conversation])
    with pytest.raises(RowNotFound):
        store.restore_message(ids[1])


@pytest.mark.parametrize("seed", range(20))
def test_any_deletions_undone_in_turn_bring_back_the_whole_tree(
    path: Path, store: Store, seed: int
) -> None:
    draw = random.Random(seed)
    conversation = store.create_conversation("Tree").id
    ids: list[int] = []
    for number in range(12):
        parent = draw.choice([None, *ids])
        role = draw.choice((USER, ASSISTANT))
        ids.append(store.add_message(conversation, parent, role, f"text {number}").id)
    before = without_use(rows(path))
    gone = draw.sample(ids, 8)
    for each in gone:
        store.delete_message(each)
    assert len(store.branch(conversation)) > 0
    for each in reversed(gone):
        store.restore_message(each)
    assert without_use(rows(path)) == before


def test_a_kill_at_any_moment_leaves_a_message_either_deleted_or_in_place(path: Path) -> None:
    store = Store.open(path)
    conversation, ids = chat(store)
    store.close()
    for milliseconds in (3, 11, 26, 40):
        call = [sys.executable, "-c", DELETE_AND_RESTORE, str(path), str(ids[1])]
        with subprocess.Popen(call, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == b"ready"
            time.sleep(milliseconds / 1000)
            child.kill()
        store = Store.open(path)
        whole = ["q1", "a1", "q2", "a2"]
        assert texts(store, conversation) in (whole, ["q1", "q2", "a2"])
        if texts(store, conversation) != whole:
            store.restore_message(ids[1])
        assert texts(store, conversation) == whole
        store.close()
