"""Engine client: the interface of an engine as the app sees it, local or remote.

The local one is `app.engines.local`. An engine that lacks a capability is never asked for it, and
the window does not offer it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from PySide6.QtCore import QObject

from engine import Command, Event


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do beyond answering; decides what the window offers."""

    adapters: bool = False  # LoRA adapters: SetAdapters
    snapshots: bool = False  # cached contexts on this disk: SaveSnapshot and LoadSnapshot
    logits: bool = False  # the probabilities of tokens
    tools: bool = False  # calls of tools
    images: bool = False  # pictures in messages
    metrics: bool = False  # what it measures: ReadMetrics


class EngineClient(Protocol):
    """An engine: it runs commands, and delivers their events on the GUI thread.

    It is made with a callback for its events, see `ClientMaker`. Events of one request are
    delivered in order; those of several requests may be interleaved in any way. Every command
    except Cancel ends with exactly one final event.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    def start(self) -> None:
        """Start processing commands; returns at once."""
        ...

    def send(self, command: Command) -> None:
        """Queue a command; returns at once. Cancel overtakes the commands before it."""
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
