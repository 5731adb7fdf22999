"""Migration to message parts: a message had one text and one error column until schema 6."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from app.domain.parts import Parts, parts_of, search_text
from app.store.part_rows import error_of_text, to_row
from app.store.search import index
from engine import Role

FAILED = "failed"  # `MessageState.FAILED`, of the module above this one


def old_parts(role: str, state: str, text: str, error: str) -> tuple[Parts, str]:
    """The parts of a message, and why it stopped, from its former columns."""
    author = Role(role) if role in {each.value for each in Role} else Role.USER
    parts = parts_of(author, text)
    if state == FAILED:
        return ((*parts, error_of_text(error)) if error else parts), ""
    return parts, error


def convert_messages(database: sqlite3.Connection) -> None:
    """Fill the table of parts and the column `stop`, then drop `text` and `error`."""
    last = -1
    while True:  # a page at a time: an open query must not see the rows it changes
        rows = database.execute(
            "SELECT id, role, state, error, text FROM message WHERE id > ? ORDER BY id LIMIT 200",
            (last,),
        ).fetchall()
        if not rows:
            break
        for number, role, state, error, text in rows:
            parts, stop = old_parts(role, state, text, error)
            database.executemany(
                "INSERT INTO part(message, kind, data, text) VALUES (?, ?, ?, ?)",
                [(number, *to_row(part)) for part in parts],
            )
            if stop:
                database.execute("UPDATE message SET stop = ? WHERE id = ?", (stop, number))
            indexed = database.execute("SELECT 1 FROM search WHERE rowid = ?", (number,)).fetchone()
            if (
                indexed and search_text(parts) != text
            ):  # it was indexed with the tags of its thoughts
                index(database, number, search_text(parts))
        last = rows[-1][0]
    _convert_deleted(database)
    database.execute("ALTER TABLE message DROP COLUMN text")
    database.execute("ALTER TABLE message DROP COLUMN error")


def _convert_deleted(database: sqlite3.Connection) -> None:
    """Convert the messages that were deleted one by one."""
    rows = database.execute("SELECT id, content FROM deleted_message").fetchall()
    for number, content in rows:
        try:
            row: dict[str, Any] = json.loads(content)
            row["parts"], row["stop"] = old_deleted(row)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue  # damaged: it cannot be restored
        database.execute(
            "UPDATE deleted_message SET content = ? WHERE id = ?", (json.dumps(row), number)
        )


def old_deleted(row: dict[str, Any]) -> tuple[list[tuple[str, str, str]], str]:
    """The rows of the parts, and why it stopped; takes the former columns out of `row`."""
    parts, stop = old_parts(row["role"], row["state"], row.pop("text"), row.pop("error"))
    return [to_row(part) for part in parts], stop
