"""The database of Ollama's app: chats and their messages in SQLite, read from a copy.

Source of the format: a description of the schema; it was not tried with a file of the program. Which
columns there are depends on the version, so they are read by name.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from app.chat.transfer.faults import TransferError
from app.chat.transfer.imported import ImportedChat, chat_of, joined_answers
from app.chat.transfer.values import a_text, a_time, an_id
from app.domain.chat_tree import node
from app.domain.message import Message
from app.domain.parts import (
    FilePart,
    Part,
    Parts,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    split,
)
from app.domain.transfer import Dropped
from app.system.translation import tr
from engine import Role

MAGIC = b"SQLite format 3\0"
_LONGEST_TEXT = 16 << 20  # bytes of an attached file that is read as text
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.ASSISTANT}


def chats(path: Path, size: int, report: Callable[[int], None]) -> Iterator[ImportedChat]:
    """The chats of a database of `size` bytes. Raises TransferError."""
    try:
        with tempfile.TemporaryDirectory(prefix="tokonoma-") as folder:
            copy = Path(folder) / "db.sqlite"
            # A copy, because to open a database with a write-ahead log would change its folder.
            for end in ("", "-wal"):
                part = path.with_name(path.name + end)
                if part.exists():
                    shutil.copyfile(part, copy.with_name(copy.name + end))
            with closing(sqlite3.connect(copy)) as database:
                yield from _chats(database, size, report)
    except sqlite3.Error as error:
        raise TransferError(
            tr("This database cannot be read: {reason}.", reason=error),
            tr("Close Ollama, then try again."),
        ) from error


def _chats(
    database: sqlite3.Connection, size: int, report: Callable[[int], None]
) -> Iterator[ImportedChat]:
    database.row_factory = sqlite3.Row
    database.text_factory = partial(str, encoding="utf-8", errors="replace")
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        database.execute(f"PRAGMA {pragma}")
    tables = {
        row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    if not {"chats", "messages"} <= tables:
        raise TransferError(tr("This is not the database of the Ollama app."))
    share = size // max(database.execute("SELECT count(*) FROM chats").fetchone()[0], 1)
    for row in database.execute("SELECT * FROM chats"):
        report(share)
        yield _chat(database, dict(row), tables)


def _chat(database: sqlite3.Connection, chat: dict[str, Any], tables: set[str]) -> ImportedChat:
    dropped = Counter[Dropped]()
    messages: list[Message] = []
    system = ""
    rows = database.execute(
        "SELECT * FROM messages WHERE chat_id = ? ORDER BY rowid", (chat.get("id"),)
    )
    for row in map(dict, rows):
        role = _ROLES.get(a_text(row.get("role")))
        if row.get("role") == "system":
            system = system or a_text(row.get("content"))
            continue
        parts = _parts(database, row, role, tables, dropped) if role else ()
        dropped[Dropped.DAMAGED] += role is None
        if role is None or not parts:
            continue
        number = len(messages) + 1
        model = a_text(row.get("model_name")) if role is Role.ASSISTANT else ""
        created = a_time(row.get("created_at"))
        messages.append(node(number, number - 1 or None, role, parts, created=created, model=model))
    joined, branch_tip = joined_answers(messages, len(messages) or None)
    number = an_id(chat.get("id"))
    tree = chat_of(
        joined,
        title=a_text(chat.get("title")),
        created=a_time(chat.get("created_at")),
        updated=0.0,
        branch_tip=branch_tip,
        origin=f"ollama:{number}" if number else "",
        instructions=system,
    )
    return ImportedChat(tree, dropped)


def _parts(
    database: sqlite3.Connection,
    row: dict[str, Any],
    role: Role,
    tables: set[str],
    dropped: Counter[Dropped],
) -> Parts:
    parts: list[Part] = []
    if "attachments" in tables:
        parts += _attachments(database, row.get("id"), dropped)
    text, thought = a_text(row.get("content")), a_text(row.get("thinking"))
    if row.get("role") == "tool":
        name = a_text(row.get("tool_name"))
        return (ToolResultPart(name, text or a_text(row.get("tool_result"))),)
    if thought.strip():
        parts.append(ThoughtPart(thought))
    if text:
        parts += [TextPart(text)] if role is Role.USER or thought else split(text)
    if "tool_calls" in tables:
        found = database.execute("SELECT * FROM tool_calls WHERE message_id = ?", (row.get("id"),))
        for call in map(dict, found):
            name = a_text(call.get("function_name"))
            parts.append(ToolCallPart(name, a_text(call.get("function_arguments"))))
            if result := a_text(call.get("function_result")):
                parts.append(ToolResultPart(name, result))
    return tuple(parts)


def _attachments(
    database: sqlite3.Connection, message: object, dropped: Counter[Dropped]
) -> Iterator[Part]:
    found = database.execute(
        "SELECT filename, substr(data, 1, ?) AS data FROM attachments WHERE message_id = ?",
        (_LONGEST_TEXT + 1, message),
    )
    for row in found:
        data = row["data"]
        name = a_text(row["filename"])
        if isinstance(data, str):
            data = data.encode()
        is_text = isinstance(data, bytes) and len(data) <= _LONGEST_TEXT and b"\0" not in data
        try:
            if is_text and data:
                yield FilePart(name, data.decode("utf-8"))
                continue
        except UnicodeDecodeError:
            pass
        is_image = name.lower().endswith((".png", ".jpg", ".jpeg", ".webp", ".gif", ".heic"))
        dropped[Dropped.IMAGES if is_image else Dropped.FILES] += 1
