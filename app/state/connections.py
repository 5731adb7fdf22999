"""Observable state of connections: engines elsewhere, what was found, every contact, the switch.

Only `app.chat.servers.connections` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from PySide6.QtCore import Signal

from app.state.observable import Observable, ReadOnly


class EngineState(Enum):
    """Whether an engine elsewhere answers."""

    UNKNOWN = auto()  # it was not asked in this run
    ASKING = auto()
    READY = auto()
    FAILED = auto()  # `problem` says why


@dataclass(frozen=True, slots=True)
class EngineRow:
    """A connection to an engine elsewhere."""

    id: str
    name: str
    address: str  # URL
    host: str
    headers: tuple[tuple[str, str], ...] = ()
    has_key: bool = False
    state: EngineState = EngineState.UNKNOWN
    models: tuple[str, ...] = ()
    named: tuple[str, ...] = ()  # of them those that the user typed, by id
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class FoundRow:
    """An engine that answers on this machine and has no connection yet."""

    name: str  # of the program: "Ollama"
    address: str  # URL
    models: int = 0
    needs_key: bool = False  # it does not say which models it has without one


@dataclass(frozen=True, slots=True)
class ContactRow:
    """An address that the app spoke to, and why."""

    host: str
    port: int
    purpose: str  # in words
    count: int
    last: float  # Unix seconds
    first: float
    sent_bytes: int
    received_bytes: int
    refused: int  # requests that the offline switch refused


@dataclass(frozen=True, slots=True)
class EngineEdit:
    """What the user wants a connection to be."""

    id: str  # "": a new one
    name: str  # "": as the server or its address says
    address: str
    headers: tuple[tuple[str, str], ...] = ()
    key: str | None = None  # None: it stays; "": it is removed
    named: tuple[str, ...] = ()  # ids of models, for a server that does not list them
    allow_http: bool = False  # the user agreed that words go unencrypted


@dataclass(frozen=True, slots=True)
class Question:
    """What the user is asked before a connection is kept, and the edit that waits for it."""

    text: str
    edit: EngineEdit


class ConnectionsState(Observable):
    """Observable; a signal is sent after a value has changed."""

    changed = Signal()  # the engines, those found, or the question
    contacts_changed = Signal()
    offline_changed = Signal()
    destination_changed = Signal()

    offered = ReadOnly(False)  # engines elsewhere can be used
    engines = ReadOnly[tuple[EngineRow, ...]](())
    deleted = ReadOnly[EngineRow | None](None)  # that Undo takes back
    found = ReadOnly[tuple[FoundRow, ...]](())
    searching = ReadOnly(False)  # for engines on this machine
    problem = ReadOnly("")  # of the last edit, in one sentence
    question = ReadOnly[Question | None](None)
    contacts = ReadOnly[tuple[ContactRow, ...]](())  # the latest first
    offline = ReadOnly(False)
    destination = ReadOnly("")  # host that the words of the shown chat go to; "": nowhere

    def engine(self, id: str) -> EngineRow | None:
        """The connection with this id."""
        return next((row for row in self.engines if row.id == id), None)

    # --- changing: app.chat.servers.connections only ----------------------------------------------------

    def set_engines(self, engines: Sequence[EngineRow], *, offered: bool = True) -> None:
        """Set the connections to engines elsewhere."""
        self._set(self.changed, engines=tuple(engines), offered=offered)

    def set_deleted(self, deleted: EngineRow | None) -> None:
        """Set the connection that Undo takes back."""
        self._set(self.changed, deleted=deleted)

    def set_found(self, found: Sequence[FoundRow], *, searching: bool) -> None:
        """Set the engines that were found on this machine."""
        self._set(self.changed, found=tuple(found), searching=searching)

    def set_edit(self, problem: str = "", question: Question | None = None) -> None:
        """Set what is wrong with the last edit, and what the user is asked about it."""
        self._set(self.changed, problem=problem, question=question)

    def set_contacts(self, contacts: Sequence[ContactRow]) -> None:
        """Set the addresses that the app spoke to."""
        self._set(self.contacts_changed, contacts=tuple(contacts))

    def set_offline(self, offline: bool) -> None:
        """Set whether the offline switch is on."""
        self._set(self.offline_changed, offline=offline)

    def set_destination(self, host: str) -> None:
        """Set where the words of the shown chat go."""
        self._set(self.destination_changed, destination=host)
