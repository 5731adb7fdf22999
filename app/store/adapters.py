"""What the store keeps of adapters: files that were added, stacks, mixes, and marks on answers.

Each function works on an open connection inside the transaction of its caller, `app.store.store`. Text
that damage has changed is read as far as it makes sense, so that it never costs a conversation.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from app.store.schema import Gone
from app.store.search import clean


@dataclass(frozen=True, slots=True)
class AdapterMark:
    """An adapter an answer was written with."""

    name: str
    strength: float
    sha256: str  # its beginning, enough to tell two files of one name apart


@dataclass(frozen=True, slots=True)
class StoredUse:
    """One adapter of a stack or a mix."""

    path: Path
    on: bool
    strength: float


@dataclass(frozen=True, slots=True)
class StoredAdapters:
    """All that is kept of adapters, but for the marks on answers."""

    known: tuple[tuple[Path, str], ...]  # path and name, in the order they were added
    stacks: dict[int, tuple[StoredUse, ...]]  # by conversation; 0: the one not begun yet
    mixes: dict[str, tuple[StoredUse, ...]]  # by name, in the order of the names


def read_adapters(database: sqlite3.Connection) -> StoredAdapters:
    """Everything at once: it is a few rows for each conversation that uses adapters."""
    known = database.execute("SELECT path, name FROM adapter ORDER BY added, path").fetchall()
    columns = "CAST(path AS TEXT), enabled, CAST(strength AS REAL)"  # whatever damage made of them
    stacks: dict[int, tuple[StoredUse, ...]] = {}
    mixes: dict[str, tuple[StoredUse, ...]] = {}
    rows = database.execute(
        f"SELECT conversation, {columns} FROM adapter_use ORDER BY conversation, position"
    )
    for conversation, path, on, strength in rows:
        use = StoredUse(Path(path), bool(on), float(strength))
        stacks[conversation] = (*stacks.get(conversation, ()), use)
    rows = database.execute(f"SELECT name, {columns} FROM adapter_mix ORDER BY name, position")
    for name, path, on, strength in rows:
        mixes[name] = (*mixes.get(name, ()), StoredUse(Path(path), bool(on), float(strength)))
    return StoredAdapters(tuple((Path(path), name) for path, name in known), stacks, mixes)


def set_stack(database: sqlite3.Connection, conversation: int, uses: Sequence[StoredUse]) -> None:
    """Replace the stack of a conversation (0: of the one not begun yet)."""
    there = database.execute("SELECT 1 FROM conversation WHERE id = ?", (conversation,))
    if conversation and there.fetchone() is None:
        raise Gone
    database.execute("DELETE FROM adapter_use WHERE conversation = ?", (conversation,))
    database.executemany(
        "INSERT INTO adapter_use(conversation, position, path, enabled, strength)"
        " VALUES (?, ?, ?, ?, ?)",
        [(conversation, place, *_columns(use)) for place, use in enumerate(uses)],
    )


def set_mix(database: sqlite3.Connection, name: str, uses: Sequence[StoredUse]) -> None:
    """Replace the mix with this name; without adapters it is deleted."""
    name = clean(name)
    database.execute("DELETE FROM adapter_mix WHERE name = ?", (name,))
    database.executemany(
        "INSERT INTO adapter_mix(name, position, path, enabled, strength) VALUES (?, ?, ?, ?, ?)",
        [(name, place, *_columns(use)) for place, use in enumerate(uses)],
    )


def set_known(database: sqlite3.Connection, path: Path, name: str) -> None:
    """Remember an adapter file, and what it is called."""
    database.execute(
        "INSERT INTO adapter(path, name, added) VALUES (?, ?, ?)"
        " ON CONFLICT(path) DO UPDATE SET name = excluded.name",
        (clean(str(path)), clean(name), time.time()),
    )


def set_marks(database: sqlite3.Connection, message: int, marks: Sequence[AdapterMark]) -> None:
    """Say with which adapters an answer is written."""
    changed = database.execute(
        "UPDATE message SET adapters = ? WHERE id = ?", (marks_text(marks), message)
    )
    if not changed.rowcount:
        raise Gone


def marks_text(marks: Sequence[AdapterMark]) -> str:
    """The column of a message; empty when there are none."""
    return clean(json.dumps([asdict(mark) for mark in marks])) if marks else ""


def marks_of(text: str) -> tuple[AdapterMark, ...]:
    """What the column of a message says; what cannot be read is left out."""
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


def _columns(use: StoredUse) -> tuple[str, int, float]:
    return clean(str(use.path)), int(use.on), use.strength
