"""Engine: owns the thread, takes commands, delivers events."""

from __future__ import annotations

from collections.abc import Callable

from engine.messages import Command, Event


class Engine:
    """The engine thread. `deliver` is called on it, once per event, and must not block."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver

    def start(self) -> None:
        """Start the thread; returns at once."""

    def send(self, command: Command) -> None:
        """Queue a command, from any thread."""

    def stop(self) -> None:
        """Cancel what runs, end the thread and wait for it."""
