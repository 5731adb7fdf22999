"""Cancellation: a flag of a request that any thread may set and that its work looks at."""

from __future__ import annotations

from engine.errors import Cancelled


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
