"""Comparisons in the store: two answers that name each other, until one is deleted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.answer_details import AnswerDetails
from app.domain.message import Message, MessageState
from app.store.schema import RowNotFound
from app.store.store import Store
from engine import Role
from store_contents import all_messages

DETAILS = (AnswerDetails(temperature=0.2), AnswerDetails(temperature=1.0, thinking="off"))


def begin(store: Store) -> tuple[int, Message, Message]:
    """A conversation with an answer and two more that are compared: its id, and these two."""
    conversation = store.create_conversation("Why?").id
    asked = store.add_message(conversation, None, Role.USER, "Why?").id
    store.add_message(conversation, asked, Role.ASSISTANT, "Because.")
    return conversation, *store.add_comparison(conversation, asked, "Small", DETAILS)


def finish(store: Store, *answers: Message) -> None:
    for answer in answers:
        store.append_text(answer.id, f"Text of {answer.id}")
        store.finish(answer.id, MessageState.COMPLETE)


def test_both_are_siblings_and_the_first_is_shown(store: Store) -> None:
    conversation, left, right = begin(store)
    assert (left.sibling, right.sibling) == (2, 3)
    finish(store, left, right)
    shown = store.branch(conversation)
    (other,) = store.others(shown)
    assert (shown[-1].id, other.id) == (left.id, right.id)
    assert (shown[-1].sibling, other.sibling, other.siblings) == (2, 3, 3)
    assert (shown[-1].compared, other.compared) == (right.id, left.id)
    assert shown[-1].undecided
    assert other.undecided
    assert (shown[-1].details, other.details) == DETAILS, "kept when none are given at the end"
    assert [m.undecided for m in shown[:-1]] == [False]


def test_details_of_the_end_replace_those_of_the_beginning(store: Store) -> None:
    _, left, _ = begin(store)
    made = replace(DETAILS[0], seed=5, ended=9.0)
    assert store.finish(left.id, MessageState.COMPLETE, details=made).details == made


@pytest.mark.parametrize("place", [0, 1])
def test_one_is_kept_and_the_comparison_opened_again(store: Store, place: int) -> None:
    conversation, *answers = begin(store)
    finish(store, *answers)
    kept, other = answers[place], answers[1 - place]
    store.keep(kept.id)
    shown = store.branch(conversation)
    assert (shown[-1].id, shown[-1].undecided, shown[-1].compared) == (kept.id, False, other.id)
    assert store.others(shown) == []
    store.reopen_comparison(kept.id)
    shown = store.branch(conversation)
    assert shown[-1].id == kept.id
    assert [each.id for each in store.others(shown)] == [other.id]


def test_keeping_shows_what_follows(store: Store) -> None:
    conversation, left, right = begin(store)
    finish(store, left, right)
    store.keep(right.id)
    after = store.add_message(conversation, right.id, Role.USER, "And then?").id
    store.select_sibling(right.id, -1)
    assert store.branch(conversation)[-1].id == left.id
    store.reopen_comparison(left.id)
    store.keep(right.id)
    assert store.branch(conversation)[-1].id == after


@pytest.mark.parametrize("place", [0, 1])
def test_deleting_one_ends_the_comparison_and_undo_brings_it_back(store: Store, place: int) -> None:
    conversation, *answers = begin(store)
    finish(store, *answers)
    gone, stays = answers[place], answers[1 - place]
    store.delete_message(gone.id)
    shown = store.branch(conversation)
    assert (shown[-1].id, shown[-1].compared, shown[-1].undecided) == (stays.id, 0, False)
    assert store.others(shown) == []
    store.reopen_comparison(stays.id)  # without another answer it does nothing
    assert not store.message(stays.id).undecided
    store.restore_message(gone.id)
    assert store.message(gone.id).compared == stays.id
    assert store.message(stays.id).compared == gone.id


def test_deleting_the_question_keeps_the_comparison(store: Store) -> None:
    conversation, left, right = begin(store)
    finish(store, left, right)
    store.delete_message(store.branch(conversation)[0].id)
    shown = store.branch(conversation)
    assert [message.id for message in shown] == [left.id]
    assert [each.id for each in store.others(shown)] == [right.id]


def test_deleted_conversation_takes_both(store: Store, tmp_path: Path) -> None:
    conversation, *_ = begin(store)
    store.delete([conversation])
    store.purge([conversation])
    with closing(sqlite3.connect(tmp_path / "conversations.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM message").fetchone() == (0,)


def test_unknown_answer_cannot_be_kept(store: Store) -> None:
    with pytest.raises(RowNotFound):
        store.keep(99)


def test_after_a_crash_both_are_interrupted_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    store = Store.open(path)
    conversation, left, right = begin(store)
    for answer in (left, right):
        store.append_text(answer.id, f"Part of {answer.id}")
    store.close()  # no answer was finished
    with closing(Store.open(path)) as store:
        shown = store.branch(conversation)
        (other,) = store.others(shown)
        for message, before, details in zip(
            (shown[-1], other), (left, right), DETAILS, strict=True
        ):
            assert message.id == before.id
            assert message.state is MessageState.INTERRUPTED
            assert message.text == f"Part of {message.id}"
            assert message.undecided
            assert message.details == details


def test_a_copy_without_write_access_has_the_comparison(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite"
    store = Store.open(path)
    conversation, left, right = begin(store)
    finish(store, left, right)
    store.close()
    with closing(Store.open_copy(path)) as copy:
        assert [each.id for each in copy.others(copy.branch(conversation))] == [right.id]


@pytest.mark.parametrize("kept", [False, True])
def test_salvage_finds_the_comparison(tmp_path: Path, kept: bool) -> None:
    path = tmp_path / "conversations.sqlite"
    store = Store.open(path)
    conversation, left, right = begin(store)
    finish(store, left, right)
    if kept:
        store.keep(right.id)
    before = all_messages(store)
    store.close()
    assert Store.salvage(path, tmp_path / "salvaged.sqlite").partly == 0
    with closing(Store.open(tmp_path / "salvaged.sqlite")) as found:
        assert all_messages(found) == before
        others = [each.id for each in found.others(found.branch(conversation))]
        assert others == ([] if kept else [right.id])


def test_salvage_of_a_store_that_was_migrated_and_then_compared(tmp_path: Path) -> None:
    """Rows from before the columns were added are shorter than the rows after them."""
    path = tmp_path / "conversations.sqlite"
    store = Store.open(path)
    _, left, right = begin(store)
    finish(store, left, right)
    before = all_messages(store)
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        columns = "compared", "undecided"
        kept = database.execute("SELECT id, compared, undecided FROM message").fetchall()
        for column in columns:
            database.execute(f"ALTER TABLE message DROP COLUMN {column}")
        for column in columns:
            database.execute(f"ALTER TABLE message ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
        for number, compared, undecided in kept:
            if compared:
                database.execute(
                    "UPDATE message SET compared = ?, undecided = ? WHERE id = ?",
                    (compared, undecided, number),
                )
    assert Store.salvage(path, tmp_path / "salvaged.sqlite").partly == 0
    with closing(Store.open(tmp_path / "salvaged.sqlite")) as found:
        assert all_messages(found) == before


@pytest.mark.parametrize("lost", ["left", "right", "both"])
def test_a_repair_writes_what_was_lost_again(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "conversations.sqlite"
    store = Store.open(path)
    conversation, left, right = begin(store)
    finish(store, left, right)
    *above, shown = store.branch(conversation)
    (other,) = store.others([shown])
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        for number, name in ((left.id, "left"), (right.id, "right")):
            if lost in (name, "both"):
                database.execute("DELETE FROM message WHERE id = ?", (number,))
    with closing(Store.open(path)) as store:
        for message in (*above, other, shown):
            store.rewrite_message(message)
        again = store.branch(conversation)
        assert again[-1] == shown
        assert store.others(again) == [other]
