"""Copying a chat, or one branch of it, with new ids: each table in one statement.

The columns of a message are copied by name, so that later columns are copied as well.
"""

from __future__ import annotations

import sqlite3

from app.domain.chat import Conversation
from app.domain.ids import new_id
from app.domain.message import MessageState
from app.store.queries import merge_chunks, require_conversation, rewrite_conversation_row

_BRANCH = """
    WITH RECURSIVE branch(id) AS (
        SELECT id FROM message WHERE conversation = ?1 AND id = ?2
        UNION ALL
        SELECT m.parent FROM message AS m JOIN branch AS b ON m.id = b.id WHERE m.parent NOT NULL
    )
    SELECT id FROM branch ORDER BY id
"""
_NEW = {  # columns that are not copied as they are; `m` is the message, `c` its ids
    "id": "c.new",
    "conversation": "?1",
    "parent": "(SELECT new FROM copied WHERE old = m.parent)",
    "compared": "coalesce((SELECT new FROM copied WHERE old = m.compared), 0)",
    "undecided": "m.undecided AND m.compared IN (SELECT old FROM copied)",
}


def copy_conversation(
    database: sqlite3.Connection, source: int, made: Conversation, until: int | None
) -> None:
    """Insert `made`, unless it exists, with the messages of `source` under new ids.

    With `until`, only the branch from the first message to this one. An answer that is being
    written is copied as far as it is stored.
    """
    require_conversation(database, source)
    if database.execute("SELECT 1 FROM message WHERE conversation = ?", (made.id,)).fetchone():
        return
    database.execute("PRAGMA defer_foreign_keys = ON")
    rewrite_conversation_row(database, made)
    if until is None:
        rows = database.execute(
            "SELECT id FROM message WHERE conversation = ? ORDER BY id", (source,)
        )
    else:
        rows = database.execute(_BRANCH, (source, until))
    ids = [(row[0], new_id()) for row in rows.fetchall()]
    database.execute("CREATE TEMP TABLE copied(old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
    try:
        database.executemany("INSERT INTO copied VALUES (?, ?)", ids)
        _copy_rows(database, made.id)
    finally:
        database.execute("DROP TABLE copied")
    branch_tip = dict(ids).get(_branch_tip(database, source) if until is None else until)
    database.execute(
        "UPDATE conversation SET leaf = ?1, turn = (SELECT turn FROM conversation WHERE id = ?2)"
        " WHERE id = ?3",
        (branch_tip, source, made.id),
    )


def _copy_rows(database: sqlite3.Connection, conversation: int) -> None:
    names = [row[1] for row in database.execute("PRAGMA table_info(message)")]
    values = ", ".join(_NEW.get(name, f"m.{name}") for name in names)
    database.execute(
        f"INSERT INTO message({', '.join(names)}) SELECT {values}"
        " FROM copied AS c JOIN message AS m ON m.id = c.old ORDER BY c.old",
        (conversation,),
    )
    database.execute(
        "INSERT INTO part(message, kind, data, text) SELECT c.new, p.kind, p.data, p.text"
        " FROM copied AS c JOIN part AS p ON p.message = c.old ORDER BY p.id"
    )
    database.execute(
        "INSERT INTO chunk(message, seq, text) SELECT c.new, k.seq, k.text"
        " FROM copied AS c JOIN chunk AS k ON k.message = c.old"
    )
    database.execute(
        "INSERT INTO search(rowid, folded) SELECT c.new, s.folded"
        " FROM copied AS c JOIN search AS s ON s.rowid = c.old"
    )
    streaming = database.execute(
        "SELECT id FROM message WHERE conversation = ? AND state = ?",
        (conversation, MessageState.STREAMING.value),
    )
    for (number,) in streaming.fetchall():
        merge_chunks(database, number, MessageState.INTERRUPTED)


def _branch_tip(database: sqlite3.Connection, conversation: int) -> int | None:
    found = database.execute("SELECT leaf FROM conversation WHERE id = ?", (conversation,))
    return found.fetchone()[0]
