"""Flags between a request and its work: that it is cancelled, and that what it waits for is done."""

from __future__ import annotations

from engine.errors import Cancelled


class Awaited:
    """What a job waits for while others go on; `done` is a plain flag, read before every pass."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False


class Cancellation:
    """Whether a request is to end soon; `is_cancelled` is a plain flag, read for every token."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """End the request soon, from any thread; does nothing for one that has ended."""
        self.is_cancelled = True

    def checkpoint(self) -> None:
        """Raise Cancelled if it was cancelled."""
        if self.is_cancelled:
            raise Cancelled
