"""Salvage: copies the readable rows of a damaged store into a new one.

The new store first gets the schema version of the damaged file, so that rows of an old version go
through its migrations like those of a whole store. The columns of a row are known by name from
`layouts`: a new table or column needs nothing here. What a lost page breaks is mended in the newest
schema: a message whose row is lost is rebuilt from the index of parents and the search index.

No copies of the store are made from time to time beside this. With any one page of a store of 123
pages and 96 messages lost, 1.3 messages change on average: their row is complete again, and of three
in four the text is that of the search index, without capitals and accents. A copy would have the
exact texts of its time, and nothing newer; it would take the space of the store once more, have to
forget what is purged, and need a merge with what is salvaged. Only a file that is overwritten as a
whole is lost without one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from app.domain.message import MessageState
from app.domain.parts import TextPart, search_text
from app.store import layouts, schema
from app.store.damaged_file import Pages, RowPage, Value, read_rows
from app.store.layouts import PLACES, Layout
from app.store.queries import read_parts, write_parts
from app.store.search import index
from app.system.text_search import normalize
from app.system.translation import tr
from engine import Role, disk_files

_ROLES = {role.value for role in Role}
_STATES = {state.value for state in MessageState}
_PLACES_TABLE = (
    f"CREATE TEMP TABLE IF NOT EXISTS {PLACES}(conversation, parent, id INTEGER PRIMARY KEY)"
)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Counts of salvaged rows, without deleted conversations."""

    conversations: int
    messages: int
    partly: int  # messages that lost a row: some of their text is folded for search, or missing


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The pages of a file, each with the table of a schema version that its rows are of."""

    version: int
    pages: list[tuple[Layout, bool, RowPage]]  # whether its rows must be exact
    fitting: int  # rows with values of the right types in all columns


def salvage(source: Path, target: Path) -> Salvaged:
    """Copy the readable rows of `source` into a new store, renamed to `target` when complete."""
    pages = Pages(source)
    read = read_rows(pages)
    known = layouts.layouts_by_version()
    version = pages.version(schema.APPLICATION)
    versions = [version] if 0 < version <= len(known) else range(1, len(known) + 1)
    # The oldest of several that fit: the migrations to the others then have nothing to change.
    found = max((_sort(read, known[each - 1], each) for each in versions), key=_fitting)
    version = found.version if found.fitting else len(known)
    unfinished = target.with_name(target.name + ".part")
    for end in ("", "-wal", "-shm"):  # of an interrupted salvage
        disk_files.delete(unfinished.with_name(unfinished.name + end))
    with closing(schema.connect(unfinished, version)) as database:
        database.execute("PRAGMA foreign_keys = OFF")  # the rows are in no order, and some lost
        _insert(database, found)
        schema.migrate(database)
        database.execute("BEGIN IMMEDIATE")
        partly = mend(database)
        database.execute("COMMIT")
        listed = "FROM conversation AS c WHERE c.deleted IS NULL"
        conversations, messages = database.execute(
            f"SELECT (SELECT count(*) {listed}), (SELECT count(*) FROM message"
            f" WHERE conversation IN (SELECT c.id {listed}))"
        ).fetchone()
    disk_files.replace(unfinished, target)
    return Salvaged(conversations, messages, partly)


def _fitting(found: _Sorted) -> int:
    return found.fitting


def _sort(read: Sequence[RowPage], trees: dict[str, Layout], version: int) -> _Sorted:
    """Find the table of each page: the one that reaches it, or that most of its rows fit."""
    found: list[tuple[Layout, bool, RowPage]] = []
    total = 0
    for page in read:
        layout = trees.get(page.tree or "")
        fitting = layout.count_exact(page.rows) if layout else 0
        is_guess = not fitting
        if is_guess:
            others = [each for each in trees.values() if not page.tree or each.table != PLACES]
            layout = max(others, key=lambda other: other.count_exact(page.rows))
            fitting = layout.count_exact(page.rows)
        if layout and fitting:
            found.append((layout, is_guess and fitting * 2 < len(page.rows), page))
            total += fitting
    return _Sorted(version, found, total)


def _is_sound(table: str, values: dict[str, Value]) -> bool:
    """Whether a row is not one of garbage, which may have the types of another."""
    match table:
        case "message":
            return values["role"] in _ROLES and values["state"] in _STATES
        case layouts.PLACES:  # else the index of conversation and id, which has the same types
            return values["parent"] != values["id"]
        case _:
            return True


def _insert(database: sqlite3.Connection, found: _Sorted) -> None:
    """Insert rows by the names of their columns; of several with one key, the first."""
    database.execute(_PLACES_TABLE)
    database.execute("BEGIN IMMEDIATE")
    for layout, exact, page in found.pages:
        for row in page.rows:
            values = layout.values(row, exact=exact)
            if values is not None and _is_sound(layout.table, values):
                names, marks = ", ".join(values), ", ".join("?" * len(values))
                with suppress(sqlite3.IntegrityError):
                    database.execute(
                        f"INSERT INTO {layout.table}({names}) VALUES ({marks})", [*values.values()]
                    )
    database.execute("COMMIT")


def mend(database: sqlite3.Connection) -> int:
    """Restore what the rows of the newest schema refer to; returns how many messages lost a row."""
    added = _add_messages(database)
    database.execute(
        "UPDATE message SET state = 'streaming' WHERE id IN (SELECT message FROM chunk)"
    )  # opening the store merges the chunks
    filled = _fill_texts(database, added)
    title = tr("Recovered chat")
    for owner, time in (("message", "created"), ("draft", "saved")):
        database.execute(
            "INSERT INTO conversation(id, title, folded, created, updated)"
            f" SELECT conversation, ?, '', min({time}), max({time}) FROM {owner}"
            " WHERE conversation > 0 AND conversation NOT IN (SELECT id FROM conversation)"
            " GROUP BY conversation",
            (title,),
        )
    database.execute("UPDATE conversation SET folded = fold(title)")
    _mend_references(database)
    database.execute(
        "UPDATE conversation SET leaf = (SELECT max(m.id) FROM message AS m"
        "  WHERE m.conversation = conversation.id)"
        " WHERE NOT EXISTS (SELECT 1 FROM message AS m"
        "  WHERE m.id = leaf AND m.conversation = conversation.id)"
    )
    return len(added | filled)


def _add_messages(database: sqlite3.Connection) -> set[int]:
    """Add the messages that an index or other messages name but whose rows are lost."""
    database.execute(_PLACES_TABLE)
    known = _ids(database)
    insert = (
        "INSERT OR IGNORE INTO message(id, conversation, parent, role, state, created)"
        f" {{}}, 'user', '{MessageState.INTERRUPTED.value}', 0"
    )
    database.execute(insert.format("SELECT id, conversation, parent") + f" FROM {PLACES}")
    database.execute(
        insert.format(
            "SELECT DISTINCT m.parent, m.conversation, (SELECT max(o.id) FROM message AS o"
            " WHERE o.conversation = m.conversation AND o.id < m.parent)"
        )
        + " FROM message AS m WHERE m.parent NOT IN (SELECT id FROM message)"
    )
    added = _ids(database) - known
    above = "FROM message AS a WHERE a.id = message.parent"
    for number in sorted(added):
        database.execute(
            f"UPDATE message SET role = CASE WHEN (SELECT role = 'user' {above})"
            f" THEN 'assistant' ELSE 'user' END, created = coalesce((SELECT created {above}), 0)"
            " WHERE id = ?",
            (number,),
        )
    return added


def _ids(database: sqlite3.Connection) -> set[int]:
    return {row[0] for row in database.execute("SELECT id FROM message")}


def _fill_texts(database: sqlite3.Connection, added: set[int]) -> set[int]:
    """Index every message; one that lost a part gets its folded text first. Returns these."""
    filled: set[int] = set()
    for number, state in database.execute("SELECT id, state FROM message").fetchall():
        parts = before = read_parts(database, number)
        row = database.execute("SELECT folded FROM search WHERE rowid = ?", (number,)).fetchone()
        known = normalize(search_text(parts))
        if state == MessageState.STREAMING.value:
            continue
        if row and len(row[0]) > len(known):
            parts = (*parts, TextPart(row[0].removeprefix(known).lstrip("\n")))
            filled.add(number)
        elif number in added and not parts:
            parts = (TextPart(tr("(This message could not be recovered.)")),)
        if parts != before:
            write_parts(database, number, parts)
        if not row or row[0] != known or parts != before:
            index(database, number, search_text(parts))
    return filled


def _mend_references(database: sqlite3.Connection) -> None:
    """Remove references to lost rows, and rows that are nothing without the lost one."""
    # Without its chat, what was allowed in one would be allowed in all.
    database.execute(
        "DELETE FROM tool_grant WHERE conversation NOT IN (SELECT id FROM conversation)"
    )
    for (table,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table'"
    ).fetchall():
        required = {row[1]: row[3] for row in database.execute(f"PRAGMA table_info({table})")}
        keys: dict[int, tuple[str, list[str], list[str]]] = {}
        for key, _, other, own, theirs, *_ in database.execute(f"PRAGMA foreign_key_list({table})"):
            _, columns, named = keys.setdefault(key, (other, [], []))
            columns.append(own)
            named.append(theirs or "rowid")
        for other, columns, named in keys.values():
            lost = f"({', '.join(columns)}) NOT IN (SELECT {', '.join(named)} FROM {other})"
            optional = [column for column in columns if not required[column]]
            change = (
                f"UPDATE {table} SET {optional[-1]} = NULL" if optional else f"DELETE FROM {table}"
            )
            database.execute(f"{change} WHERE {lost}")
            if other == table and optional:  # what no root reaches is in a cycle or below one
                up, own = optional[-1], named[-1]
                same = " AND ".join(map("t.{} = r.{}".format, columns, named))
                database.execute(
                    f"UPDATE {table} SET {up} = NULL WHERE {up} >= {own} AND {own} NOT IN ("
                    f" WITH RECURSIVE reached({', '.join(named)}) AS ("
                    f"  SELECT {', '.join(named)} FROM {table} WHERE {up} IS NULL UNION ALL"
                    f"  SELECT {', '.join(f't.{each}' for each in named)} FROM {table} AS t"
                    f"   JOIN reached AS r ON {same})"
                    f" SELECT {own} FROM reached)"
                )
        # 0: the conversation that is not begun yet. Calls of tools stay without their chat.
        if "conversation" in required and not keys and table != "tool_activity":
            database.execute(
                f"DELETE FROM {table} WHERE conversation <> 0"
                " AND conversation NOT IN (SELECT id FROM conversation)"
            )
