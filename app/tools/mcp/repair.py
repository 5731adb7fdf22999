"""Repairs lists of tools before the SDK reads them, which refuses a whole list for one bad tool.

A tool is made anew of what is well formed. One whose arguments cannot be described is marked; the
schemas of results are left out: checking a result by its server's own schema proves nothing, and
such a schema may contain an expression that takes years to match, or an address to fetch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, cast

from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse

UNUSABLE = "tokonoma/unusable"  # in the metadata of a tool whose schema was replaced
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_TASKS = ("forbidden", "optional", "required")

Message = SessionMessage | Exception


@asynccontextmanager
async def repaired(transport: Transport) -> AsyncGenerator[Any]:
    """The streams of a transport, of which the one from the server repairs lists of tools."""
    async with transport as (from_server, to_server):
        yield _Repaired(from_server), to_server


def repaired_tool(tool: object) -> dict[str, Any] | None:
    """A tool as the protocol has it; None without a name."""
    found = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    name = found.get("name")
    if not isinstance(name, str):
        return None
    made: dict[str, Any] = {"name": name}
    for key in ("title", "description"):
        if isinstance(found.get(key), str):
            made[key] = found[key]
    hints = _map(found.get("annotations")) or {}
    made["annotations"] = {
        **{key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)},
        **({"title": hints["title"]} if isinstance(hints.get("title"), str) else {}),
    }
    support = (_map(found.get("execution")) or {}).get("taskSupport")
    if support in _TASKS:
        made["execution"] = {"taskSupport": support}
    schema = _schema(found.get("inputSchema"))
    if schema is None:
        return made | {"inputSchema": {"type": "object"}, "_meta": {UNUSABLE: True}}
    return made | {"inputSchema": schema}


def _schema(value: object) -> dict[str, Any] | None:
    """A schema of an object; None if it is none."""
    found = _map(value)
    if found is None:
        return None
    made = {"type": "object", **found}
    properties = _map(made.get("properties", {}))
    required = made.get("required", [])
    fits = (
        made["type"] == "object"
        and properties is not None
        and all(isinstance(each, dict | bool) for each in properties.values())
        and isinstance(required, list)
        and all(isinstance(each, str) for each in cast("list[Any]", required))
    )
    return made if fits else None


def _map(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


class _Repaired:
    """A stream of messages from a server, as the SDK reads it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Any:
        """What the HTTP transport hands on with a message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Message:
        """The next message."""
        return _repair(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def __aiter__(self) -> _Repaired:
        return self

    async def __anext__(self) -> Message:
        return _repair(await self._stream.__anext__())

    async def __aenter__(self) -> _Repaired:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


def _repair(item: Message) -> Message:
    if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
        tools = item.message.result.get("tools")
        if isinstance(tools, list):
            made = map(repaired_tool, cast("list[object]", tools))
            item.message.result["tools"] = [each for each in made if each is not None]
    return item
