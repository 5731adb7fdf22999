"""The services of the built-in tools in tests: what they are asked, and what they give."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from app.domain.tools import ToolError
from app.tools.services import Found

T = TypeVar("T")


def run(call: Coroutine[Any, Any, T]) -> T:
    """What a call of a tool gives."""
    return asyncio.run(call)


class RecordedServices:
    """Services that keep what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.found: list[Found] = []
        self.texts: dict[bytes, str] = {}  # the texts of documents by their bytes
        self.kept: list[tuple[Path, bytes]] = []
        self.keeps: Exception | None = None  # why nothing can be kept

    async def passages(self, conversation: int, query: str, count: int) -> Sequence[Found]:
        self.asked.append(("passages", conversation, query, count))
        return self.found

    async def chats(self, query: str, count: int) -> Sequence[Found]:
        self.asked.append(("chats", query, count))
        return self.found

    async def text_of(self, path: Path, name: str) -> str:
        content = await asyncio.to_thread(path.read_bytes)
        self.asked.append(("text_of", path.suffix, name))
        if content not in self.texts:
            raise ToolError("It is a picture.")
        return self.texts[content]

    async def keep(self, path: Path, content: bytes) -> str:
        if self.keeps is not None:
            raise self.keeps
        self.kept.append((path, content))
        return f"copy {len(self.kept)}"
