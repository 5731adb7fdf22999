"""Sources of tools joined to one: a call goes to the source of its tool, and names differ.

An earlier source keeps its names: a server cannot put a tool in the place of a built-in one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from app.domain.tools import CallContext, ToolError, ToolOutcome, ToolSource, ToolSpec

LONGEST_NAME = 64  # characters
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


class JoinedTools:
    """A ToolSource of others; `sources` may change while it is used, on any thread."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._sources = sources

    def tools(self) -> Sequence[ToolSpec]:
        """All tools, each id once, with names that differ also in more than their letters' case."""
        made: list[ToolSpec] = []
        names, ids = set[str](), set[str]()
        for source in tuple(self._sources):
            for spec in source.tools():
                if spec.id in ids:
                    continue
                ids.add(spec.id)
                name = _unused(spec, names)
                names.add(name.casefold())
                made.append(spec if name == spec.name else replace(spec, name=name))
        return made

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """What a call changes or sends, in words for the user."""
        source = self._of(id)
        return source.changes(id, arguments, context) if source else ()

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        """What else consent is bound to."""
        source = self._of(id)
        return source.scope(id, arguments) if source else ""

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        """Carry out a call; raises ToolError."""
        if (source := self._of(id)) is None:
            raise ToolError("This tool is no longer there.")
        return await source.call(id, arguments, context)

    def _of(self, id: str) -> ToolSource | None:
        """The first source that has a tool."""
        for source in tuple(self._sources):
            if any(spec.id == id for spec in source.tools()):
                return source
        return None


def _unused(spec: ToolSpec, names: set[str]) -> str:
    """A name that no tool has: its own, that with its server's before it, or one with a number."""
    own = _OTHER.sub("_", spec.name)[:LONGEST_NAME] or "tool"
    server = _OTHER.sub("_", spec.server)
    long = f"{server}_{own}"[:LONGEST_NAME] if server else own
    for name in (own, long):
        if name.casefold() not in names:
            return name
    numbered = (f"{long[: LONGEST_NAME - 5]}_{number}" for number in count(2))
    return next(name for name in numbered if name.casefold() not in names)
