"""What the built-in tools need of the app: documents, chats, and a place for replaced files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """A piece of text that a search found."""

    name: str  # of the document or chat
    text: str
    place: str = ""  # in it: "page 3", or when it was written


class Services(Protocol):
    """Called on the event loop of the tools' thread; every call may raise ToolError."""

    async def passages(self, conversation: int, query: str, count: int) -> Sequence[Found]:
        """The passages of a chat's documents that fit a query best, the best first."""
        ...

    async def chats(self, query: str, count: int) -> Sequence[Found]:
        """The messages of all chats that fit a query best, the best first."""
        ...

    async def text_of(self, path: Path, name: str) -> str:
        """The text of a document such as a PDF; `name` is that by which the user knows it.

        Raises ToolError with the reason if there is none.
        """
        ...

    async def keep(self, path: Path, content: bytes) -> str:
        """Keep what a file had before a tool replaced it; where it is kept, in words.

        Raises ToolError or OSError if it cannot be kept: the file is then not replaced.
        """
        ...
