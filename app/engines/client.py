"""Engine client: the interface of an engine as the app sees it, local or remote.

The local one is `app.engines.local`. An engine that lacks a capability is never asked for it, and
the window does not offer it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from PySide6.QtCore import QObject

from app.engines.capabilities import Capabilities
from engine import Event, Request


class Handle(Protocol):
    """A submitted request."""

    @property
    def id(self) -> int:
        """What its events carry as `request`; unique in the process."""
        ...

    def cancel(self) -> None:
        """End it soon; its final event still comes."""
        ...


class EngineClient(Protocol):
    """An engine: it runs requests, and delivers their events on the GUI thread.

    It is made with a callback for its events, see `ClientMaker`. Events of one request are
    delivered in order; those of several requests may be interleaved in any way. Every request ends
    with exactly one final event.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    def start(self) -> None:
        """Start processing requests; returns at once."""
        ...

    def submit(self, request: Request) -> Handle:
        """Queue a request; returns at once. No event of it is delivered before this returns."""
        ...

    def drain(self) -> None:
        """Deliver the events that have come so far now; call it on the GUI thread."""
        ...

    def stop(self) -> None:
        """Stop for good, and wait until it has stopped; may be called on any thread.

        The last events are delivered by the next `drain`.
        """
        ...


Deliver = Callable[[Sequence[Event]], None]
# Makes the client of an engine; it lives as long as the QObject given, on the GUI thread.
ClientMaker = Callable[[Deliver, QObject], EngineClient]
