"""RequestHandle: a request that was submitted to the engine: its id, where its events go, cancelling."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import ClassVar

from engine.core.cancellation import Cancellation
from engine.messages import Event, Priority, Request

Deliver = Callable[[Event], None]


def _nothing() -> None:
    """Nobody waits for a handle that is cancelled."""


class RequestHandle(Cancellation):
    """A submitted request; `id` is unique in the process, and its events carry it."""

    __slots__ = (
        "_wake",
        "arrived",
        "client",
        "deadline",
        "deliver",
        "has_answer",
        "has_begun",
        "id",
        "priority",
        "request",
    )

    _ids: ClassVar = itertools.count(1)

    def __init__(
        self,
        request: Request,
        deliver: Deliver,
        *,
        priority: Priority = Priority.NORMAL,
        client: str = "",
        deadline: float | None = None,
        wake: Callable[[], None] = _nothing,
    ) -> None:
        """`deadline` is the number of seconds after which it must have begun; `wake` is called once
        it is cancelled.
        """
        super().__init__()
        self.id: int = next(self._ids)
        self.request = request
        self.deliver = deliver
        self.priority = priority
        self.client = client
        self.arrived = time.perf_counter()
        self.deadline = None if deadline is None else self.arrived + deadline
        self.has_begun = False  # it does not wait any more
        self.has_answer = False  # its prompt is processed
        self._wake = wake

    def cancel(self) -> None:
        """End the request soon, from any thread; its final event still comes.

        Does nothing for one that has ended.
        """
        super().cancel()
        self._wake()

    @property
    def is_overdue(self) -> bool:
        """Whether it has waited beyond its deadline."""
        if self.deadline is None or self.has_begun:
            return False
        return time.perf_counter() > self.deadline

    def __repr__(self) -> str:
        return f"request {self.id} ({type(self.request).__name__})"
