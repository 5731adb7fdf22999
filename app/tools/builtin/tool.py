"""What a built-in tool is: its description for the model, what a call changes, and the call."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from app.domain.builtin_words import about_of, title_of
from app.domain.tools import CallContext, Effect, ToolSpec
from app.tools.services import Services

T = TypeVar("T")
PREFIX = "builtin/"


class BuiltIn(Protocol):
    """A tool of the app; its arguments have the names and types of its schema."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered now."""
        ...

    def changes(self, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """What a call changes or sends, in words for the user; raises ToolError."""
        ...

    def scope(self, arguments: Mapping[str, Any]) -> str:
        """What else consent is bound to; raises ToolError."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """Carry out a call; raises ToolError."""
        ...


class Changeless:
    """The part of a tool that changes and sends nothing."""

    def changes(self, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """Nothing."""
        del arguments, context
        return ()

    def scope(self, arguments: Mapping[str, Any]) -> str:
        """Nothing."""
        del arguments
        return ""


def schema(required: Sequence[str] = (), /, **properties: tuple[str, str]) -> str:
    """The JSON schema of arguments: the type and the description of each."""
    form: dict[str, Any] = {
        "type": "object",
        "properties": {
            name: {"type": kind, "description": about} for name, (kind, about) in properties.items()
        },
    }
    if required:
        form["required"] = list(required)
    form["additionalProperties"] = False
    return json.dumps(form, ensure_ascii=False)


def spec(name: str, description: str, form: str, *effects: Effect, problem: str = "") -> ToolSpec:
    """The description of a built-in tool, with its words for the window."""
    return ToolSpec(
        PREFIX + name,
        name,
        title_of(name),
        description,
        form,
        effects=frozenset(effects),
        problem=problem,
        about=about_of(name),
    )


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """Do blocking work on a thread; when the call is cancelled, the work's event is set.

    The thread has ended when this returns, so that nothing of a stopped call goes on.
    """
    stopped = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stopped))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([running])
        raise


async def document_text(services: Services, content: bytes, ending: str, name: str) -> str:
    """The text of a document, which other processes read from a copy; raises ToolError."""
    with tempfile.TemporaryDirectory(prefix="tool-") as folder:
        copy = Path(folder) / f"document{ending}"
        await in_thread(lambda _: copy.write_bytes(content))
        return await services.text_of(copy, name)
