"""SQL of the folders: reading, saving, deleting and restoring them, and the places of chats.

Each function runs on an open connection in the transaction of its caller, `app.store.store`. A
folder that is not deleted is never in a deleted one.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from app.domain.chat import Folder
from app.store.search import clean

_LIVE = "(SELECT id FROM folder WHERE id = {} AND deleted IS NULL)"
_AROUND = """
    WITH RECURSIVE around(id) AS (
        VALUES ({})
        UNION
        SELECT f.parent FROM folder AS f JOIN around AS a ON f.id = a.id WHERE f.parent NOT NULL
    )
"""


def read_folders(database: sqlite3.Connection) -> list[Folder]:
    """The folders that are not deleted, by position."""
    rows = database.execute(
        "SELECT id, name, parent, instructions, preset, position FROM folder"
        " WHERE deleted IS NULL ORDER BY position, id"
    )
    return [Folder(*row) for row in rows]


def save_folder(database: sqlite3.Connection, folder: Folder) -> None:
    """Insert a folder, or change it; one that would come to be inside itself goes to the top."""
    text = None if folder.instructions is None else clean(folder.instructions)
    around = _AROUND.format("?6")
    database.execute(
        "INSERT INTO folder(id, name, instructions, preset, position, parent, created)"
        f" VALUES (?1, ?2, ?3, ?4, ?5, {_LIVE.format('?6')}, ?7)"
        " ON CONFLICT(id) DO UPDATE SET name = ?2, instructions = ?3, preset = ?4, position = ?5,"
        f" parent = CASE WHEN ?1 IN ({around} SELECT id FROM around) THEN NULL"
        f" ELSE {_LIVE.format('?6')} END",
        (folder.id, clean(folder.name), text, folder.preset, folder.position, folder.parent,
        time.time()),
    )  # fmt: skip


def set_deleted(
    database: sqlite3.Connection,
    conversation_ids: Sequence[int],
    folder_ids: Sequence[int],
    when: float | None,
) -> None:
    """Mark conversations and folders as deleted; None restores them, and the folders around them."""
    for table, ids in (("conversation", conversation_ids), ("folder", folder_ids)):
        database.executemany(
            f"UPDATE {table} SET deleted = ? WHERE id = ?", [(when, number) for number in ids]
        )
    if when is None:
        around = _AROUND.format("(SELECT folder FROM conversation WHERE id = ?)")
        folders_around = _AROUND.format("?")
        for script, ids in ((around, conversation_ids), (folders_around, folder_ids)):
            database.executemany(
                "UPDATE folder SET deleted = NULL WHERE deleted NOT NULL"
                f" AND id IN ({script} SELECT id FROM around)",
                [(number,) for number in ids],
            )


def set_place(
    database: sqlite3.Connection, conversation: int, folder: int | None, *, archived: bool
) -> None:
    """Move a conversation into a folder, None: out of all, and into or out of the archive."""
    database.execute(
        f"UPDATE conversation SET folder = {_LIVE.format('?')}, archived = ? WHERE id = ?",
        (folder, archived, conversation),
    )


def set_pinned(database: sqlite3.Connection, conversation: int, *, pinned: bool) -> None:
    """List a conversation first, or no longer."""
    database.execute("UPDATE conversation SET pinned = ? WHERE id = ?", (pinned, conversation))
