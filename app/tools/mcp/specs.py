"""Tools of servers as they are offered to a model and allowed by the user."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import cast

from mcp import types

from app.domain.tools import Effect, ToolSpec
from app.system.translation import number, tr
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.log import ServerLog, visible
from app.tools.mcp.repair import UNUSABLE

MOST_TOOLS = 100
MOST_NAME = 256  # letters
_MOST_TITLE = 100
_MOST_DESCRIPTION = 4_000
_MOST_SCHEMA = 65_536  # bytes
_MOST_DEPTH = 32  # of a schema
_NO_SCHEMA = '{"type": "object"}'


class Listing:
    """The tools that a server lists, page by page; their names are not made unique yet."""

    def __init__(self, entry: ServerEntry, log: ServerLog) -> None:
        self.is_cut = False  # there are more than `MOST_TOOLS`
        self._entry, self._log = entry, log
        self._made: dict[str, ToolSpec] = {}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Those that are used; one that cannot be called has a problem."""
        return tuple(self._made.values())

    def add(self, tools: Iterable[types.Tool]) -> None:
        """Add the tools of a page of the list; logs those that cannot be used."""
        for tool in tools:
            if not tool.name or len(tool.name) > MOST_NAME or not tool.name.isprintable():
                self._log.add(f"a tool was left out: its name cannot be used: {tool.name[:80]}")
            elif tool.name in self._made:
                self._log.add(f"a tool was left out: its name is listed twice: {tool.name}")
            elif len(self._made) < MOST_TOOLS:
                self._made[tool.name] = _spec(self._entry, tool)
            else:
                self.is_cut = True


def _spec(entry: ServerEntry, tool: types.Tool) -> ToolSpec:
    schema, problem = _schema(tool)
    if tool.execution and tool.execution.task_support == "required":
        problem = tr("This tool runs only as a task in the background, which is not supported.")
    hints = tool.annotations
    title = tool.title or (hints.title if hints else None) or tool.name
    effects = {Effect.NETWORK} if entry.is_http else {Effect.RUNS}
    if not (hints and hints.read_only_hint):
        effects.add(Effect.WRITES)  # unless it says otherwise; what it says may be wrong
    return ToolSpec(
        id=f"{entry.id}/{tool.name}",
        name=tool.name,
        title=visible(title, _MOST_TITLE),
        description=visible(tool.description or "", _MOST_DESCRIPTION, lines=True),
        schema=schema,
        server=entry.name,
        effects=frozenset(effects),
        origin=entry.origin,
        problem=problem,
    )


def _schema(tool: types.Tool) -> tuple[str, str]:
    """The text of a schema of arguments, and why it cannot be used."""
    if (tool.meta or {}).get(UNUSABLE) or _depth(tool.input_schema) > _MOST_DEPTH:
        return _NO_SCHEMA, tr("The server describes its arguments in a form that cannot be used.")
    text = json.dumps(tool.input_schema, ensure_ascii=False, sort_keys=True)
    if len(text.encode("utf-8", "replace")) > _MOST_SCHEMA:
        return _NO_SCHEMA, tr(
            "The description of its arguments is larger than {size} KB.",
            size=number(_MOST_SCHEMA // 1024),
        )
    return text, ""


def _depth(value: object, level: int = 0) -> int:
    """How deep a value is nested; more than is allowed counts as one too many."""
    if level > _MOST_DEPTH:
        return level
    match value:
        case dict():
            inner: Iterable[object] = cast("dict[str, object]", value).values()
        case list():
            inner = cast("list[object]", value)
        case _:
            return level
    return max((_depth(each, level + 1) for each in inner), default=level + 1)
