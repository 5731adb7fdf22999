"""Saved prompts in the store; each function runs in the transaction of its caller."""

from __future__ import annotations

import sqlite3

from app.domain.snippet import Snippet
from app.store.search import clean


def read_snippets(database: sqlite3.Connection) -> list[Snippet]:
    """All saved prompts, the oldest first."""
    columns = "id, CAST(name AS TEXT), CAST(text AS TEXT), CAST(created AS REAL)"
    rows = database.execute(f"SELECT {columns} FROM snippet ORDER BY id").fetchall()
    return [Snippet(*row) for row in rows]


def write_snippet(database: sqlite3.Connection, snippet: Snippet) -> None:
    """Save a prompt in place of the one with its id."""
    database.execute(
        "INSERT OR REPLACE INTO snippet(id, name, text, created) VALUES (?, ?, ?, ?)",
        (snippet.id, clean(snippet.name), clean(snippet.text), snippet.created),
    )


def delete_snippet(database: sqlite3.Connection, snippet_id: int) -> None:
    """Delete a saved prompt."""
    database.execute("DELETE FROM snippet WHERE id = ?", (snippet_id,))
