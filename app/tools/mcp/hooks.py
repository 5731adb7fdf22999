"""What a running server may ask for, and what of it a window or a prompt needs; no SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A server asks for an answer of the user's model."""

    messages: tuple[tuple[str, str], ...]  # role ("user" or "assistant") and text
    instructions: str = ""
    most_tokens: int = 0
    temperature: float | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hooks:
    """Questions to the user, awaited on the tools' thread; a hook that is None refuses.

    Each gets the name of the server first. They are cancelled when the server or the call ends.
    """

    # A form: what the server writes above it, and a flat JSON schema; None: the user declined.
    ask_form: Callable[[str, str, Mapping[str, Any]], Awaitable[Answer | None]] | None = None
    # An answer of the model; None: the user declined this one request.
    ask_sampling: Callable[[str, SamplingRequest], Awaitable[str | None]] | None = None
    # Show an address and why, and open it in the system's browser; False: the user declined.
    open_page: Callable[[str, str, str], Awaitable[bool]] | None = None


class ServerState(StrEnum):
    """Where a server is."""

    OFF = "off"  # not started in this run of the app
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server as the window shows it."""

    id: str
    name: str
    state: ServerState = ServerState.OFF
    problem: str = ""  # why it failed, one sentence
    remedy: str = ""  # what to do
    notice: str = ""  # what it changed while it ran, one sentence
    program: str = ""  # its own name and version
    protocol: str = ""  # version of the protocol
    tools: int = 0


@dataclass(frozen=True, slots=True)
class ServerResource:
    """A text or file that a server offers; with `is_template`, `uri` has places to fill in."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    media_type: str = ""
    size: int = 0  # bytes; 0: not known
    is_template: bool = False


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """What was read of a resource: a text, or bytes."""

    uri: str
    media_type: str
    text: str = ""
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """A value that a prompt needs."""

    name: str
    description: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """A snippet that a server offers."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
