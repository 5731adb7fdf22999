"""Deleting one message of the tree and putting it back exactly.

The row moves to another table, as JSON by column name and with its parts, so that later columns of
`message` are kept as well. Each function runs in the transaction of its caller, `app.store.store`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from app.domain.message import MessageState
from app.domain.parts import search_text
from app.store.part_rows import from_row, to_row
from app.store.queries import LAST_USED_BELOW, merge_chunks, read_parts, set_branch_tip, write_parts
from app.store.schema import RowNotFound
from app.store.search import index

_LAST_USED = """
    SELECT m.id FROM message AS m WHERE m.conversation = ?1 AND NOT EXISTS (
        SELECT 1 FROM message AS s WHERE s.conversation = ?1 AND s.parent = m.id
    ) ORDER BY m.used DESC, m.id DESC LIMIT 1
"""


def delete_message(database: sqlite3.Connection, message_id: int) -> None:
    """Remove a message; its children become children of its parent."""
    row = _row(database, message_id)
    if row["state"] == MessageState.STREAMING.value:
        merge_chunks(database, message_id, MessageState.INTERRUPTED)
        row = _row(database, message_id)
    row["parts"] = [to_row(part) for part in read_parts(database, message_id)]
    conversation, parent = row["conversation"], row["parent"]
    children = [
        found[0]
        for found in database.execute(
            "SELECT id FROM message WHERE conversation = ? AND parent = ? ORDER BY id",
            (conversation, message_id),
        )
    ]
    branch_tip = database.execute("SELECT leaf FROM conversation WHERE id = ?", (conversation,))
    was_leaf = branch_tip.fetchone()[0] == message_id
    database.execute(
        "INSERT INTO deleted_message(id, deleted, conversation, was_leaf, content, children)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (message_id, time.time(), conversation, was_leaf, json.dumps(row), json.dumps(children)),
    )
    _set_parent(database, conversation, children, parent)
    database.execute("DELETE FROM message WHERE id = ?", (message_id,))
    if was_leaf:
        _show_last_used(database, conversation, parent)


def restore_message(database: sqlite3.Connection, message_id: int) -> None:
    """Put a deleted message back, above the children it had; it is the branch_tip if it was it."""
    found = database.execute(
        "SELECT conversation, was_leaf, content, children FROM deleted_message WHERE id = ?",
        (message_id,),
    ).fetchone()
    if found is None:
        raise RowNotFound
    conversation, was_leaf, content, children = found
    row: dict[str, Any] = json.loads(content)
    parts = tuple(from_row(*each) for each in row.pop("parts"))
    columns, places = ", ".join(row), ", ".join("?" * len(row))
    database.execute(f"INSERT INTO message({columns}) VALUES ({places})", list(row.values()))
    write_parts(database, message_id, parts)
    index(database, message_id, search_text(parts))
    _set_parent(database, conversation, json.loads(children), message_id)
    database.execute("DELETE FROM deleted_message WHERE id = ?", (message_id,))
    if was_leaf:
        set_branch_tip(database, conversation, message_id)


def _row(database: sqlite3.Connection, message_id: int) -> dict[str, Any]:
    """All columns of a message by name; raises RowNotFound."""
    rows = database.execute("SELECT * FROM message WHERE id = ?", (message_id,))
    row = rows.fetchone()
    if row is None:
        raise RowNotFound
    return {column[0]: value for column, value in zip(rows.description, row, strict=True)}


def _set_parent(
    database: sqlite3.Connection, conversation: int, ids: list[int], parent: int | None
) -> None:
    database.executemany(
        "UPDATE message SET parent = ? WHERE conversation = ? AND id = ?",
        [(parent, conversation, each) for each in ids],
    )


def _show_last_used(database: sqlite3.Connection, conversation: int, parent: int | None) -> None:
    """Make the branch below `parent` (None: of the whole tree) that was used last the shown one."""
    found = (
        database.execute(_LAST_USED, (conversation,))
        if parent is None
        else database.execute(LAST_USED_BELOW, (parent, conversation))
    ).fetchone()
    if found is None:  # it was the only message
        database.execute("UPDATE conversation SET leaf = NULL WHERE id = ?", (conversation,))
    else:
        set_branch_tip(database, conversation, found[0])
