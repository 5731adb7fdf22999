"""Reading a store of a newer version: its rows are copied into a store of this one.

The newer file is not changed. Columns are matched by name: those that this version does not know are
left out, and one that the newer version dropped is empty. What refers to rows that are not there is
mended as after a salvage.
"""

from __future__ import annotations

import sqlite3

from app.domain.message import MessageState
from app.store import schema
from app.store.salvage import mend
from app.system.translation import tr
from engine import Role

_NEEDED = {
    "conversation": {"id", "title"},
    "message": {"id", "conversation", "parent", "role"},
    "part": {"message", "kind", "text"},
}
_VALUES = {
    "role": (Role.USER, Role.ASSISTANT),
    "state": (*MessageState, MessageState.COMPLETE),
}  # that messages have here; the last one is that of others
_EMPTY = {"INTEGER": "0", "REAL": "0.0"}  # of a column by its type; else an empty text


def copy_newer(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Fill `target`, which is empty, with what this version knows of a newer store.

    Raises StoreError if it has no chats in a form that this version knows.
    """
    schema.migrate(target)
    theirs = {table: set(_columns(source, table)) for table in _tables(source)}
    if not all(needed <= theirs.get(table, set()) for table, needed in _NEEDED.items()):
        raise schema.StoreError(
            tr(
                "Your chats were saved by a newer version of Tokonoma, in a form that this one lacks."
            ),
            tr("Update Tokonoma to open them. They were not changed."),
        )
    target.execute("PRAGMA foreign_keys = OFF")  # the tables are in no order
    target.execute("BEGIN IMMEDIATE")
    for table in _tables(target):
        if table in theirs:
            _copy(source, target, table, theirs[table])
    mend(target)
    target.execute("COMMIT")
    target.execute("PRAGMA foreign_keys = ON")


def _tables(database: sqlite3.Connection) -> list[str]:
    """The tables with rows of this app: not those in which SQLite and its indexes keep theirs."""
    rows = database.execute(
        "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite%'"
    )
    return [name for name, kind in rows if kind in ("table", "virtual")]


def _columns(database: sqlite3.Connection, table: str) -> dict[str, tuple[str, bool]]:
    """Type, and whether it has to be given, of each column."""
    rows = database.execute(f"PRAGMA table_info({table})")
    return {row[1]: (row[2], bool(row[3]) and row[4] is None) for row in rows}


def _copy(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, theirs: set[str]
) -> None:
    """Copy the rows of one table; of those that do not fit together, the first."""
    values: dict[str, str] = {}
    for name, (kind, is_required) in _columns(target, table).items():
        if name in theirs:
            values[name] = _known(table, name)
        elif is_required:
            values[name] = _EMPTY.get(kind, "''")
    if table == "search":  # its rows are found by their number, which is no column
        values["rowid"] = "rowid"
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    rows = source.execute(f"SELECT {', '.join(values.values())} FROM {table}")
    target.executemany(f"INSERT OR IGNORE INTO {table}({names}) VALUES ({marks})", rows)


def _known(table: str, column: str) -> str:
    """The expression of a column; a role or state of the newer version becomes a known one."""
    if table != "message" or column not in _VALUES:
        return column
    known = _VALUES[column]
    names = ", ".join(f"'{each.value}'" for each in known)
    return f"CASE WHEN {column} IN ({names}) THEN {column} ELSE '{known[-1].value}' END"
