"""Observable state of the server for other programs: whether it runs, its users, its log.

Only `app.chat.servers.serving` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from PySide6.QtCore import Signal

from app.state.observable import Observable, ReadOnly


class ServerPhase(Enum):
    """What the server does."""

    OFF = auto()
    STARTING = auto()
    ON = auto()
    STOPPING = auto()
    FAILED = auto()  # `problem` says why


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A program that is answered, or was lately."""

    name: str  # as it calls itself; "": it does not
    address: str  # IP address
    running: int  # requests that are being answered
    requests: int  # so far
    last: float  # Unix seconds of the last one


@dataclass(frozen=True, slots=True)
class LogRow:
    """One request of the log."""

    number: int
    began: float  # Unix seconds
    client: str
    method: str
    path: str
    model: str
    status: int  # of HTTP; 0: no answer has begun
    seconds: float
    prompt_tokens: int
    generated_tokens: int
    outcome: str  # why it failed, in one sentence
    prompt: str  # "" where texts are not logged
    answer: str
    is_running: bool = False  # it is being answered


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The server as the page shows it."""

    offered: bool = False  # there is a server in this version
    phase: ServerPhase = ServerPhase.OFF
    addresses: tuple[str, ...] = ()  # URLs under which it can be reached, the usual one first
    problem: str = ""
    remedy: str = ""
    running: int = 0  # requests that are being answered
    requests: int = 0  # so far
    failed: int = 0  # of these
    clients: tuple[ClientRow, ...] = ()
    log: tuple[LogRow, ...] = ()  # the last one first
    has_tray: bool = False  # the desktop has a place for a tray symbol


class ServerState(Observable):
    """Observable; the signal is sent after the value has changed."""

    changed = Signal()

    status = ReadOnly(ServerStatus())

    @property
    def is_serving(self) -> bool:
        """Whether other programs can use it, or soon can."""
        return self.status.phase in (ServerPhase.STARTING, ServerPhase.ON)

    # --- changing: app.chat.servers.serving only --------------------------------------------------------

    def set(self, **values: Any) -> None:
        """Change some values of the status."""
        status = replace(self.status, **values)
        self._set(self.changed, status=status)
