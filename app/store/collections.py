"""Collections in the store; each function runs in the transaction of its caller."""

from __future__ import annotations

import json
import sqlite3
from typing import cast

from app.domain.collection import Collection
from app.store.search import clean


def read_collections(database: sqlite3.Connection) -> list[Collection]:
    """All collections, the oldest first."""
    columns = "id, CAST(name AS TEXT), CAST(sources AS TEXT), CAST(created AS REAL)"
    rows = database.execute(f"SELECT {columns} FROM collection ORDER BY created, id")
    return [Collection(id, name, _paths(text), created) for id, name, text, created in rows]


def write_collection(database: sqlite3.Connection, collection: Collection) -> None:
    """Save a collection in place of the one with its id."""
    # In ASCII: a path may have bytes that are no UTF-8, which Python keeps as surrogates.
    sources = json.dumps(collection.sources)
    database.execute(
        "INSERT OR REPLACE INTO collection(id, name, sources, created) VALUES (?, ?, ?, ?)",
        (collection.id, clean(collection.name), sources, collection.created),
    )


def delete_collection(database: sqlite3.Connection, collection_id: int) -> None:
    """Delete a collection; its files stay where they are."""
    database.execute("DELETE FROM collection WHERE id = ?", (collection_id,))


def _paths(text: str) -> tuple[str, ...]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    paths = cast("list[object]", found) if isinstance(found, list) else []
    return tuple(path for path in paths if isinstance(path, str) and path)
