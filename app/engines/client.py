"""Engine client: the interface of an engine as the app sees it, local or remote.

The local one is `app.engines.local`. An engine that lacks a capability is never asked for it, and
the window does not offer it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QObject

from app.engines.capabilities import Capabilities
from app.engines.run import Run
from engine import Event, Priority, Request


class EngineClient(Protocol):
    """An engine: it works on requests, whose runs go on on the GUI thread.

    Events of one request are delivered in order; those of several requests may be interleaved in any
    way. Every request ends with exactly one final event.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    def start(self) -> None:
        """Start processing requests; returns at once."""
        ...

    def submit(self, request: Request, priority: Priority = Priority.WINDOW) -> Run:
        """Queue a request; returns at once, before any event of it is delivered."""
        ...

    def drain(self) -> None:
        """Deliver the events that have come so far now; call it on the GUI thread."""
        ...

    def stop(self) -> None:
        """Stop for good, and wait until it has stopped; may be called on any thread.

        The last events are delivered by the next `drain`.
        """
        ...


# Makes the client of an engine, which lives as long as the QObject given, on the GUI thread. The
# function is called there with each event that belongs to no request.
ClientMaker = Callable[[Callable[[Event], None], QObject], EngineClient]
