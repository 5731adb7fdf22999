"""What is allowed to tools, and all calls of them; functions run in their caller's transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, fields
from enum import StrEnum
from typing import TypeVar

from app.domain.tool_activity import Allowed, CallState, Grant, ToolActivity
from app.store.search import clean

E = TypeVar("E", bound=StrEnum)
_GRANT = "tool, digest, scope, conversation, shown, created"
_CALL = tuple(field.name for field in fields(ToolActivity) if field.name != "title")


def read_grants(database: sqlite3.Connection) -> list[Grant]:
    """All that is allowed, the newest first."""
    columns = (
        "CAST(tool AS TEXT), CAST(digest AS TEXT), CAST(scope AS TEXT), conversation,"
        " CAST(shown AS TEXT), CAST(created AS REAL)"
    )
    rows = database.execute(f"SELECT {columns} FROM tool_grant ORDER BY created DESC, rowid DESC")
    return [Grant(*row) for row in rows]


def write_grant(database: sqlite3.Connection, grant: Grant) -> None:
    """Allow something, in place of what was allowed of the same tool as it was before."""
    delete_grants(database, grant.tool, grant.scope, grant.conversation)
    marks = ", ".join("?" * len(fields(Grant)))
    database.execute(
        f"INSERT INTO tool_grant({_GRANT}) VALUES ({marks})",
        [clean(each) if isinstance(each, str) else each for each in astuple(grant)],
    )


def delete_grants(
    database: sqlite3.Connection, tool: str, scope: str, conversation: int | None
) -> None:
    """Allow something no more."""
    database.execute(
        "DELETE FROM tool_grant WHERE tool = ? AND scope = ? AND conversation IS ?",
        (clean(tool), clean(scope), conversation),
    )


def delete_all_grants(database: sqlite3.Connection) -> None:
    """Allow nothing any more."""
    database.execute("DELETE FROM tool_grant")


def write_call(database: sqlite3.Connection, call: ToolActivity) -> None:
    """Insert a call, or replace the one with its id."""
    values = [getattr(call, name) for name in _CALL]
    database.execute(
        f"INSERT OR REPLACE INTO tool_activity({', '.join(_CALL)})"
        f" VALUES ({', '.join('?' * len(_CALL))})",
        [clean(str(each)) if isinstance(each, str) else each for each in values],
    )


def read_calls(database: sqlite3.Connection, most: int) -> tuple[list[ToolActivity], int]:
    """The last calls with the titles of their chats, the newest first, and how many there are."""
    rows = database.execute(_SELECT + " ORDER BY began DESC, a.id DESC LIMIT ?", (most,))
    count = database.execute("SELECT count(*) FROM tool_activity").fetchone()[0]
    return list(map(_call, rows)), count


def begun_calls(database: sqlite3.Connection, message: int) -> frozenset[str]:
    """The ids of a message's calls that have begun, and have no end."""
    rows = database.execute(
        "SELECT CAST(call AS TEXT) FROM tool_activity WHERE message = ? AND state = ?",
        (message, CallState.RUNNING.value),
    )
    return frozenset(call for (call,) in rows)


_TEXTS = ("call", "tool", "name", "server", "arguments", "result", "state", "allowed")
_SELECT = (
    "SELECT "
    + ", ".join(f"CAST(a.{name} AS TEXT)" if name in _TEXTS else f"a.{name}" for name in _CALL)
    + ", coalesce(c.title, '') FROM tool_activity a"
    " LEFT JOIN conversation c ON c.id = a.conversation AND c.deleted IS NULL"
)


def _call(row: tuple[object, ...]) -> ToolActivity:
    values = dict(zip((*_CALL, "title"), row, strict=True))
    values["state"] = _member(CallState, values["state"], CallState.FAILED)
    values["allowed"] = _member(Allowed, values["allowed"], Allowed.NOBODY)
    return ToolActivity(**values)  # type: ignore[arg-type]


def _member(kind: type[E], stored: object, usual: E) -> E:
    """The member of another version is the usual one."""
    return next((each for each in kind if each.value == stored), usual)
