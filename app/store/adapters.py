"""Adapter tables of the store: known files, mixes, and the adapters of each answer.

Each function runs on an open connection in the transaction of its caller, `app.store.store`.
Damaged text is skipped instead of raising, so that the conversation can still be read.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from app.domain.chat_settings import AdapterChoice
from app.domain.message import AdapterMark
from app.store.schema import RowNotFound
from app.store.search import clean


@dataclass(frozen=True, slots=True)
class StoredAdapters:
    """The known files and the mixes."""

    known: tuple[tuple[Path, str], ...]  # path and name, the oldest first
    mixes: dict[str, tuple[AdapterChoice, ...]]  # by name, sorted


def read_adapters(database: sqlite3.Connection) -> StoredAdapters:
    """Read the known files and the mixes."""
    known = database.execute("SELECT path, name FROM adapter ORDER BY added, path").fetchall()
    columns = "CAST(path AS TEXT), enabled, CAST(strength AS REAL)"  # damage may change types
    mixes: dict[str, tuple[AdapterChoice, ...]] = {}
    rows = database.execute(f"SELECT name, {columns} FROM adapter_mix ORDER BY name, position")
    for name, path, on, strength in rows:
        mixes[name] = (*mixes.get(name, ()), AdapterChoice(Path(path), bool(on), float(strength)))
    return StoredAdapters(tuple((Path(path), name) for path, name in known), mixes)


def set_mix(database: sqlite3.Connection, name: str, uses: Sequence[AdapterChoice]) -> None:
    """Replace the mix of this name; an empty one is deleted."""
    name = clean(name)
    database.execute("DELETE FROM adapter_mix WHERE name = ?", (name,))
    database.executemany(
        "INSERT INTO adapter_mix(name, position, path, enabled, strength) VALUES (?, ?, ?, ?, ?)",
        [(name, place, *_columns(use)) for place, use in enumerate(uses)],
    )


def set_known(database: sqlite3.Connection, path: Path, name: str) -> None:
    """Store an adapter file and its name."""
    database.execute(
        "INSERT INTO adapter(path, name, added) VALUES (?, ?, ?)"
        " ON CONFLICT(path) DO UPDATE SET name = excluded.name",
        (clean(str(path)), clean(name), time.time()),
    )


def set_marks(database: sqlite3.Connection, message: int, marks: Sequence[AdapterMark]) -> None:
    """Store which adapters an answer is generated with."""
    changed = database.execute(
        "UPDATE message SET adapters = ? WHERE id = ?", (marks_text(marks), message)
    )
    if not changed.rowcount:
        raise RowNotFound


def marks_text(marks: Sequence[AdapterMark]) -> str:
    """Marks as JSON for the column of a message; empty when there are none."""
    return clean(json.dumps([asdict(mark) for mark in marks])) if marks else ""


def marks_of(text: str) -> tuple[AdapterMark, ...]:
    """Parse the column of a message; invalid entries are skipped."""
    if not text:
        return ()
    try:
        rows: object = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(rows, list):
        return ()
    marks: list[AdapterMark] = []
    for row in cast("list[object]", rows):
        match row:
            case {
                "name": str(name),
                "strength": int() | float() as strength,
                "sha256": str(digest),
            }:
                marks.append(AdapterMark(name, float(strength), digest))
            case _:
                pass
    return tuple(marks)


def _columns(use: AdapterChoice) -> tuple[str, int, float]:
    return clean(str(use.path)), int(use.on), use.strength
