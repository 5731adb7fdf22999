"""Converts the settings of chats of schemas before 11 to one JSON record for each chat.

They were in the column `policy` and in the tables `answer_options` and `adapter_use`, where 0 is
the chat that is not begun yet. Like the migration's SQL, this is never edited.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, cast

from app.store.search import clean

_USUAL_POLICY = "drop oldest"


def convert_settings(database: sqlite3.Connection) -> None:
    """Write the records, and remove what they replace."""
    records: dict[int, dict[str, Any]] = {}
    stacks: dict[int, list[list[Any]]] = {}
    rows = database.execute("SELECT conversation, CAST(data AS TEXT) FROM answer_options")
    for conversation, text in rows.fetchall():
        if options := _options(text):
            records.setdefault(conversation, {}).update(options)
    rows = database.execute(
        "SELECT conversation, CAST(path AS TEXT), enabled, CAST(strength AS REAL) FROM adapter_use"
        " ORDER BY conversation, position"
    )
    for conversation, path, on, strength in rows.fetchall():
        stacks.setdefault(conversation, []).append([path, bool(on), strength])
    for conversation, stack in stacks.items():
        records.setdefault(conversation, {})["adapters"] = stack
    rows = database.execute("SELECT id, policy FROM conversation WHERE policy <> ''")
    for conversation, policy in rows.fetchall():
        if policy != _USUAL_POLICY:
            records.setdefault(conversation, {})["policy"] = policy
    new_chat = records.pop(0, None)
    if new_chat is not None:
        database.execute(
            "INSERT INTO record(name, data) VALUES ('new chat', ?)", (_text(new_chat),)
        )
    database.executemany(
        "UPDATE conversation SET settings = ? WHERE id = ?",
        [(_text(values), conversation) for conversation, values in records.items()],
    )
    for trigger in ("conversation_options", "conversation_adapters"):
        database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    for table in ("answer_options", "adapter_use"):
        database.execute(f"DROP TABLE {table}")
    database.execute("ALTER TABLE conversation DROP COLUMN policy")


def _options(text: str) -> dict[str, Any]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _text(values: dict[str, Any]) -> str:
    return clean(json.dumps({**values, "version": 1}, ensure_ascii=False))
