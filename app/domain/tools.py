"""Tools that a model may call: what each is, what a call of it does, and what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol


class Effect(StrEnum):
    """What a call does outside the chat; a tool without any needs no consent."""

    READS = "reads"  # files, documents or other chats
    WRITES = "writes"  # files
    NETWORK = "network"  # sends something to another computer
    RUNS = "runs"  # a program


# They read what the user has given to the chat: that was the consent.
_GIVEN = frozenset(("builtin/read_file", "builtin/list_folder", "builtin/search_documents"))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is offered to a model, and as the user allows it."""

    id: str  # unique and the same in every run: "builtin/calculate", "SERVER/NAME"
    name: str  # as the model writes it: 1 to 64 ASCII letters, digits, "_" and "-"
    title: str  # for the window
    description: str  # for the model
    schema: str  # of its arguments: the text of a JSON schema of an object
    server: str = ""  # name of the MCP server; "": built in
    effects: frozenset[Effect] = frozenset()
    origin: str = ""  # what answers it: the server's command or address with headers; "": built in
    problem: str = ""  # why it cannot be used on this computer now, one sentence; "": it can
    about: str = ""  # description for the window, one line; "": `description` is shown

    @property
    def digest(self) -> str:
        """SHA-256 of what the user allows: where it comes from, name, description and schema."""
        shown = "\0".join((self.origin, self.id, self.name, self.description, self.schema))
        return hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()

    @property
    def is_given(self) -> bool:
        """Whether no call needs consent: it has no effect, or reads what the chat was given."""
        return not self.server and (not self.effects or self.id in _GIVEN)


def _no_output(_text: str) -> None:
    """Where no one reads what a call prints."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a call may use: that of its chat, and nothing else."""

    conversation: int
    readable: tuple[Path, ...] = ()  # files and folders that the user picked for this chat
    writable: tuple[Path, ...] = ()  # folders that the user picked for this chat
    output: Callable[[str], None] = field(default=_no_output)  # text as it comes, on any thread


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A picture, a sound or another file that a tool returned beside its text."""

    name: str
    media_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool returned, or why it failed: a text that the model reads."""

    text: str
    failed: bool = False
    files: tuple[ToolFile, ...] = ()  # for the user; the text says in a line that they exist
    files_left_out: int = 0  # further ones: they were too many, or too large


class ToolError(Exception):
    """A call that cannot be carried out: `str(error)` says why, for the model and the user."""


class ToolSource(Protocol):
    """Where tools come from: the built-in ones, or an MCP server.

    `tools`, `changes` and `scope` return at once, on any thread; `call` runs on the event loop of the
    tools' thread and is cancelled when the user presses Stop, after which nothing of it may go on.
    """

    def tools(self) -> Sequence[ToolSpec]:
        """The tools that it has now."""
        ...

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """What a call changes or sends, in words for the user: one sentence each; none: nothing.

        Raises ToolError if it cannot be carried out: then the user is not asked.
        """
        ...

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        """What else consent is bound to, such as the host of an address; "": nothing else."""
        ...

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        """Carry out a call; raises ToolError."""
        ...
