"""SQL of the presets: one row each, with all but its name as JSON.

Each function runs on an open connection in the transaction of its caller, `app.store.store`.
"""

from __future__ import annotations

import sqlite3
import time

from app.domain.chat import Preset
from app.domain.presets import preset_of, preset_text
from app.store.search import clean


def read_presets(database: sqlite3.Connection) -> list[Preset]:
    """The presets, the oldest first."""
    rows = database.execute(
        "SELECT id, CAST(name AS TEXT), CAST(data AS TEXT) FROM preset ORDER BY created, id"
    )
    return [preset_of(*row) for row in rows]


def set_preset(database: sqlite3.Connection, preset: Preset) -> None:
    """Insert a preset, or replace the one with its id."""
    database.execute(
        "INSERT INTO preset(id, name, data, created) VALUES (?, ?, ?, ?)"
        " ON CONFLICT(id) DO UPDATE SET name = excluded.name, data = excluded.data",
        (preset.id, clean(preset.name), clean(preset_text(preset)), time.time()),
    )


def delete_preset(database: sqlite3.Connection, id: int) -> None:
    """Remove a preset."""
    database.execute("DELETE FROM preset WHERE id = ?", (id,))
