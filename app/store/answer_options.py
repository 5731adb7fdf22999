"""Answer options of conversations: sampling and format, as JSON in the store."""

from __future__ import annotations

import sqlite3
import time

from app.store.schema import RowNotFound
from app.store.search import clean

_VERSION = 1


def read_options(database: sqlite3.Connection) -> dict[int, str]:
    """The options of all conversations that have some; 0: of the new chat."""
    rows = database.execute("SELECT conversation, CAST(data AS TEXT) FROM answer_options")
    return {number: text for number, text in rows if text}


def set_options(database: sqlite3.Connection, conversation: int, text: str) -> None:
    """Save the options of a conversation, 0 for the new chat; an empty text removes them."""
    there = database.execute("SELECT 1 FROM conversation WHERE id = ?", (conversation,))
    if conversation and there.fetchone() is None:
        raise RowNotFound
    if text:
        database.execute(
            "INSERT OR REPLACE INTO answer_options(conversation, saved, version, data)"
            " VALUES (?, ?, ?, ?)",
            (conversation, time.time(), _VERSION, clean(text)),
        )
    else:
        database.execute("DELETE FROM answer_options WHERE conversation = ?", (conversation,))
