"""RequestHandle: a request that was submitted to the engine: its id, where its events go, cancelling."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import ClassVar

from engine.core.cancellation import Cancellation
from engine.messages import Event, Request

Deliver = Callable[[Event], None]


class RequestHandle(Cancellation):
    """A submitted request; `id` is unique in the process, and its events carry it."""

    __slots__ = ("arrived", "deliver", "id", "request")

    _ids: ClassVar = itertools.count(1)

    def __init__(self, request: Request, deliver: Deliver) -> None:
        super().__init__()
        self.id: int = next(self._ids)
        self.request = request
        self.deliver = deliver
        self.arrived = time.perf_counter()

    def __repr__(self) -> str:
        return f"request {self.id} ({type(self.request).__name__})"
