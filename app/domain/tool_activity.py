"""What was allowed to tools, and every call that was ever made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Allowed(StrEnum):
    """By what a call was allowed."""

    NO_EFFECT = "no effect"  # it changes, sends and reads nothing that was not given to the chat
    ONCE = "once"  # by the user, this call
    CHAT = "chat"  # by the user, in this chat
    ALWAYS = "always"  # by the user, in all chats
    NOBODY = "nobody"  # it was denied, or refused


class CallState(StrEnum):
    """What became of a call."""

    RUNNING = "running"  # after a crash: it may have been carried out, or not
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    STOPPED = "stopped"
    REFUSED = "refused"  # there is no such tool in the chat, or its arguments are wrong


@dataclass(frozen=True, slots=True)
class ToolActivity:
    """One call, as the list of all calls has it."""

    id: int
    conversation: int
    message: int
    call: str  # id of the call in its message
    tool: str  # id of the tool; "": there is no such tool
    name: str  # as the model wrote it
    server: str  # name of the MCP server; "": built in
    arguments: str  # JSON text
    result: str  # what the model reads of it
    state: CallState
    allowed: Allowed
    began: float  # seconds since 1970
    seconds: float = 0.0
    title: str = ""  # of its chat; "": it was deleted


@dataclass(frozen=True, slots=True)
class Grant:
    """What the user allowed for later calls of a tool, as it was then."""

    tool: str  # its id
    digest: str  # of the tool, see `ToolSpec.digest`
    scope: str = ""  # such as the host of an address; "": not bound to one
    conversation: int | None = None  # None: in all chats
    shown: str = ""  # what was allowed: origin, name, description and schema, to show a difference
    created: float = 0.0  # seconds since 1970
