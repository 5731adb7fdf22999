"""RequestHandle: a request that was submitted to the engine: its id, where its events go, cancelling."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import ClassVar

from engine.errors import Cancelled
from engine.messages import Event, Request

Deliver = Callable[[Event], None]


class RequestHandle:
    """A submitted request; `id` is unique in the process, and its events carry it."""

    __slots__ = ("_cancelled", "arrived", "deliver", "id", "request")

    _ids: ClassVar = itertools.count(1)

    def __init__(self, request: Request, deliver: Deliver) -> None:
        self.id: int = next(self._ids)
        self.request = request
        self.deliver = deliver
        self.arrived = time.perf_counter()
        self._cancelled = False

    def cancel(self) -> None:
        """End the request soon, from any thread; its final event still comes.

        Does nothing for one that has ended.
        """
        self._cancelled = True

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._cancelled

    def checkpoint(self) -> None:
        """Raise Cancelled if it was cancelled."""
        if self._cancelled:
            raise Cancelled

    def __repr__(self) -> str:
        return f"request {self.id} ({type(self.request).__name__})"
