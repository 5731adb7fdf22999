"""Comparisons in the store: two answers to one question that name each other.

Both are versions of one answer: siblings in the tree of messages. A comparison ends when one of
them is deleted, and is there again when that is undone, since the other still names it. Each
function runs on an open connection in the transaction of its caller, `app.store.store`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from app.domain.answer_details import AnswerDetails, details_text
from app.domain.message import Message, MessageState
from app.store.queries import find, insert_message, set_branch_tip, show_last_used_below, touch
from app.store.search import clean
from engine import Role


def add_both(
    database: sqlite3.Connection,
    conversation: int,
    parent: int,
    model: str,
    details: Sequence[AnswerDetails],
    ids: tuple[int, int],
) -> tuple[Message, Message]:
    """Insert both answers, with what is known of how they will be made; the first is the branch_tip.

    `model` is the displayed name of the model of those whose details have none. Nothing changes if
    they exist.
    """
    left, right = ids
    role, state, added = Role.ASSISTANT, MessageState.STREAMING, False
    for number, other, known in zip((left, right), (right, left), details, strict=True):
        name = known.model or model
        if insert_message(database, number, conversation, parent, role, (), state, name):
            added = True
            database.execute(
                "UPDATE message SET compared = ?, undecided = 1, details = ? WHERE id = ?",
                (other, clean(details_text(known)), number),
            )
    if added:
        set_branch_tip(database, conversation, right)  # it is shown next if the first is deleted
        set_branch_tip(database, conversation, left)
        touch(database, conversation)
    return find(database, left), find(database, right)


def keep(database: sqlite3.Connection, message_id: int) -> None:
    """Close the comparison of an answer, and show the last used branch with it."""
    message = find(database, message_id)
    _set_undecided(database, message, undecided=False)
    show_last_used_below(database, message.conversation, message_id)


def reopen(database: sqlite3.Connection, message_id: int) -> None:
    """Open the comparison of an answer again, if the other answer still exists."""
    message = find(database, message_id)
    if message.compared:
        _set_undecided(database, message, undecided=True)


def _set_undecided(database: sqlite3.Connection, message: Message, *, undecided: bool) -> None:
    database.execute(
        "UPDATE message SET undecided = ? WHERE id IN (?, ?)",
        (undecided, message.id, message.compared),
    )
