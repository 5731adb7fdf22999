"""The columns of every table in every version of the schema, to read rows without SQLite.

They are taken from a database in memory that is migrated step by step.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from app.store import schema
from app.store.damaged_file import Row, Value

PLACES = "message_parent"  # an index that has the conversation and the parent of each message
_PLACE = ("conversation", "parent", "id")
_TYPES = {"TEXT": (str,), "INTEGER": (int,), "REAL": (int, float), "BLOB": (bytes,)}
_ANY = (str, int, float, bytes)


@dataclass(frozen=True, slots=True)
class Column:
    """A column as declared."""

    name: str
    kind: str  # TEXT, INTEGER, REAL, BLOB, or none
    required: bool
    has_default: bool
    is_key: bool  # in the primary key or a reference


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a table, or the entries of an index, are stored."""

    table: str
    columns: tuple[Column, ...]
    row_id: str | None  # the column that is the row id; "": no column; None: rows have no row id
    lengths: frozenset[int]  # of rows: SQLite does not rewrite them when a column is added

    def count_exact(self, rows: Iterable[Row]) -> int:
        """How many rows have values of the declared types in all columns."""
        return sum(self.values(row, exact=True) is not None for row in rows)

    def values(self, row: Row, *, exact: bool = False) -> dict[str, Value] | None:
        """The values of a row by column; None if it is not one of this table.

        Unless `exact`, damage may have changed the type of a value: then it becomes the default.
        """
        number, record = row
        if (number is None) != (self.row_id is None) or len(record) not in self.lengths:
            return None
        values: dict[str, Value] = {}
        for column, value in zip(self.columns, record, strict=False):
            if column.name == self.row_id:
                if value is not None or not _fits(column, number):
                    return None
                values[column.name] = number
            elif _fits(column, value):
                values[column.name] = value
            elif exact:
                return None
            elif column.kind == "TEXT" and isinstance(value, bytes):
                values[column.name] = value.decode("utf-8", "replace")
            elif column.required and (
                column.is_key or (column.kind == "TEXT" and not column.has_default)
            ):
                return None
            elif not column.has_default:
                values[column.name] = 0 if column.required else None
        return values


def _fits(column: Column, value: Value) -> bool:
    if value is None:
        return not column.required
    if column.is_key and isinstance(value, int) and value < 0:
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return type(value) in _TYPES.get(column.kind, _ANY)


def layouts_by_version() -> list[dict[str, Layout]]:
    """The layouts of each version from 1 on, by the name of the tree of pages in the file."""
    versions: list[dict[str, Layout]] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        schema.prepare(database)
        for version in range(1, len(schema.MIGRATIONS) + 1):
            schema.migrate(database, version)
            versions.append(_layouts(database, versions[-1] if versions else {}))
    return versions


def _layouts(database: sqlite3.Connection, before: dict[str, Layout]) -> dict[str, Layout]:
    """The layouts of the database; `before`: those of the version before it."""
    tables = dict(
        database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
    )
    found: dict[str, Layout] = {}
    for name, sql in tables.items():
        virtual = next(
            (t for t in tables if name.startswith(f"{t}_") and _is_virtual(tables[t])), ""
        )
        if virtual and name == f"{virtual}_content":  # where FTS5 keeps its rows
            texts = [Column(each, "TEXT", True, False, False) for each in _names(database, virtual)]
            row_id = Column("rowid", "INTEGER", True, False, True)
            found[name] = _layout(virtual, [row_id, *texts], "rowid", None)
        elif not virtual and not _is_virtual(sql):
            found[name] = _table(database, name, "WITHOUT ROWID" in sql.upper(), before.get(name))
    entry = [Column(each, "INTEGER", each != "parent", False, True) for each in _PLACE]
    return found | {PLACES: _layout(PLACES, entry, None, None)}


def _is_virtual(sql: str) -> bool:
    return sql.upper().startswith("CREATE VIRTUAL")


def _names(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def _table(
    database: sqlite3.Connection, name: str, without_row_id: bool, before: Layout | None
) -> Layout:
    described = database.execute(f"PRAGMA table_info({name})").fetchall()
    references = {row[3] for row in database.execute(f"PRAGMA foreign_key_list({name})")}
    primary = [row[1] for row in sorted(described, key=lambda row: row[5]) if row[5]]
    columns = [
        Column(
            column,
            kind,
            required=bool(required or place),
            has_default=default is not None,
            is_key=bool(place or column in references or column == "conversation"),
        )
        for _, column, kind, required, default, place in described
    ]
    if without_row_id:  # the primary key is stored first
        columns.sort(key=lambda each: primary.index(each.name) if each.name in primary else 99)
        return _layout(name, columns, None, before)
    alias = [
        column.name for column in columns if [column.name] == primary and column.kind == "INTEGER"
    ]
    return _layout(name, columns, alias[0] if alias else "", before)


def _layout(
    table: str,
    columns: list[Column],
    row_id: str | None,
    before: Layout | None,
) -> Layout:
    lengths = {len(columns)}
    if before is not None:
        names = [column.name for column in columns]
        kept = [column.name for column in before.columns if column.name in names]
        # A dropped column is taken out of all rows; those that are added later are not put in.
        lengths |= before.lengths if len(kept) == len(before.columns) else {len(kept)}
    return Layout(table, tuple(columns), row_id, frozenset(lengths))
