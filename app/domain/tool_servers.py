"""Servers of tools as the window shows them, and what the user is asked about them.

Texts that come from a server are not trusted: whoever shows them writes hidden characters out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from app.domain.forms import FormField


class ServerPhase(Enum):
    """Where a server is."""

    OFF = auto()
    STARTING = auto()
    LOGIN = auto()  # it starts, and waits for the user to log in, in the browser
    READY = auto()
    FAILED = auto()  # `problem` says why


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool, a resource or a prompt of a server that runs."""

    id: str  # name of a tool or prompt, address of a resource
    title: str
    about: str = ""
    arguments: tuple[FormField, ...] = ()  # of a prompt
    is_template: bool = False  # a resource whose address has places to fill in


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server as its page shows it."""

    id: str
    name: str
    where: str  # its whole command, or its address; hidden characters are escapes
    is_http: bool = False
    phase: ServerPhase = ServerPhase.OFF
    problem: str = ""
    remedy: str = ""
    notice: str = ""  # what it changed while it ran, one sentence
    program: str = ""  # its own name and version
    is_on: bool = False  # the user wants it
    with_app: bool = False  # it starts with the app
    asks_first: bool = True  # it was never allowed, or is not what was allowed
    was_allowed: bool = False  # so it was changed since, if `asks_first`
    tools: tuple[Offered, ...] = ()
    resources: tuple[Offered, ...] = ()
    prompts: tuple[Offered, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerDraft:
    """A server as the user enters it; a value that is None is kept as it is stored."""

    id: str = ""  # "": a new one
    name: str = ""
    command: str = ""
    arguments: tuple[str, ...] = ()
    folder: str = ""
    environment: tuple[tuple[str, str | None], ...] = field(default=(), repr=False)
    address: str = ""
    headers: tuple[tuple[str, str | None], ...] = field(default=(), repr=False)
    seconds: float = 60.0  # time limit of a call


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """The servers of another program's file; nothing of it is stored or started yet."""

    text: str  # of the file
    servers: tuple[ServerRow, ...] = ()
    problems: tuple[str, ...] = ()  # what is not taken over, one sentence each


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """Whether a server may start: exactly what would be started, or connected to."""

    number: int
    server: str  # id
    name: str
    command: tuple[str, ...] = ()  # the program and each argument; hidden characters are escapes
    folder: str = ""
    environment: tuple[str, ...] = ()  # names
    address: str = ""
    headers: tuple[str, ...] = ()  # names
    differences: tuple[str, ...] = ()  # lines, after "+" or "-", from what was allowed before


@dataclass(frozen=True, slots=True)
class FormQuestion:
    """A server asks for values."""

    number: int
    name: str  # of the server
    text: str  # what it writes above the form
    fields: tuple[FormField, ...] = ()
    is_own: bool = False  # the user chose a prompt or a resource that needs values


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """A server asks to open a page in the browser, such as that of a login."""

    number: int
    name: str
    address: str  # that is opened
    text: str = ""


@dataclass(frozen=True, slots=True)
class SamplingQuestion:
    """A server asks for an answer of the model."""

    number: int
    name: str
    messages: tuple[tuple[str, str], ...]  # role and text; the instructions first, as "system"
    is_written: bool = False  # the user agreed: the model writes, or has written, `answer`
    is_done: bool = False
    answer: str = ""
    problem: str = ""  # why the model cannot answer, one sentence


Question = StartQuestion | FormQuestion | PageQuestion | SamplingQuestion
