"""RequestQueue: the requests that have not begun, bounded, and which of them may begin beside others.

Each request claims the models it works on. One that replaces or unloads a model claims it alone: it
waits for those before it, and those after it wait. Others begin by priority.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine.core.handle import RequestHandle
from engine.errors import Busy
from engine.messages import (
    Chat,
    Complete,
    FindDevices,
    Load,
    MeasureSpeed,
    Request,
    Restore,
    Save,
    SetAdapters,
    SetDraft,
    Unload,
)

MAIN, _LOADING = "main", "loading"
_MOST_WAIT_SECONDS = 60.0  # that a refused client is told to wait

Claim = Path | str | tuple[Path | str, str]  # a model, or a conversation with it


@dataclass(frozen=True, slots=True)
class Limits:
    """How many requests may be unfinished at once; those of the program itself do not count."""

    requests: int = 256  # of all clients that have a name
    per_client: int = 64


class Claims(NamedTuple):
    """What a request needs."""

    shared: frozenset[Claim]
    alone: frozenset[Claim] = frozenset()
    blocked: frozenset[Claim] = frozenset()  # what those after it may not share while it is there


class RequestQueue:
    """Queued requests in order of arrival; the caller holds the lock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.items: list[RequestHandle] = []  # the oldest first
        self._open: dict[int, str] = {}  # clients of unfinished requests, by id
        self._seconds = 1.0  # that a request takes, running mean

    def has(self, id: int) -> bool:
        """Whether the request of an id is queued."""
        return any(one.id == id for one in self.items)

    def add(self, handle: RequestHandle) -> None:
        """Queue a request; raises Busy."""
        if handle.client:
            self._refuse(handle.client)
            self._open[handle.id] = handle.client
        self.items.append(handle)

    def _refuse(self, client: str) -> None:
        """Raise Busy if there are too many requests."""
        limits, after = self._limits, min(max(self._seconds, 1.0), _MOST_WAIT_SECONDS)
        own = sum(one == client for one in self._open.values())
        if own >= limits.per_client:
            raise Busy(
                f"This client has {own} requests that have not ended.",
                "Wait until some of them have.",
                after,
            )
        if len(self._open) >= limits.requests:
            raise Busy(
                f"{len(self._open)} requests have not ended.", "Try again a little later.", after
            )

    def remove(self, handle: RequestHandle) -> None:
        """Take out a request that begins."""
        self.items.remove(handle)

    def clear(self) -> None:
        """Take out all requests."""
        self.items.clear()

    def on_end(self, handle: RequestHandle, seconds: float) -> None:
        """A request has ended, so many seconds after it was submitted."""
        if self._open.pop(handle.id, None) is not None:
            self._seconds += (seconds - self._seconds) / 8

    def next(
        self,
        running: Iterable[RequestHandle],
        main: Path | None,
        resident: Collection[Path],
        is_ready: Callable[[RequestHandle], bool],
    ) -> RequestHandle | None:
        """The request that begins next; it stays in the queue.

        `main` is the file of the main model, `resident` those of all. One that was cancelled, or is overdue, begins at once:
        that ends it. One that is not `is_ready` waits, and holds up those that need its model alone.
        """
        shared, alone = set[Claim](), set[Claim]()
        for handle in running:
            _hold(claims(handle.request, main, resident), shared, alone)
        found: RequestHandle | None = None
        for handle in self.items:
            if handle.is_overdue or (
                handle.is_cancelled and not isinstance(handle.request, Unload)
            ):
                return handle
            wanted = claims(handle.request, main, resident)
            may_begin = not (
                wanted.alone & shared or wanted.alone & alone or wanted.shared & alone
            ) and is_ready(handle)
            if may_begin and (found is None or handle.priority < found.priority):
                found = handle
            _hold(wanted, shared, alone)
        return found


def _hold(wanted: Claims, shared: set[Claim], alone: set[Claim]) -> None:
    shared |= wanted.shared
    alone |= wanted.alone | wanted.blocked


def claims(request: Request, main: Path | None, resident: Collection[Path]) -> Claims:
    """What a request needs; `main` is the file of the main model, `resident` those of all."""
    match request:
        case FindDevices():
            return Claims(frozenset())
        case Load(path=path, beside=True) if path in resident:  # it is ready
            return Claims(frozenset({model_of(path, main)}))
        case Load(path=path, beside=beside):
            own = {_LOADING, model_of(path, main)} | (set() if beside else {MAIN})
            return Claims(frozenset(), frozenset(own))
        case MeasureSpeed():  # what runs beside it would be measured too
            every = {_LOADING, MAIN, *(model_of(path, main) for path in resident)}
            return Claims(frozenset(), frozenset(every))
        case SetDraft():
            return Claims(frozenset(), frozenset({_LOADING, model_of(request.model, main)}))
        case Unload():
            return Claims(frozenset(), frozenset({model_of(request.model, main)}))
        case _:
            model = model_of(request.model, main)
    shared = frozenset[Claim]({model})
    match request:
        case SetAdapters():  # the answers after it have them
            return Claims(shared, blocked=shared)
        case Restore(conversation=name):  # the answer after it finds its pages
            return Claims(shared, blocked=frozenset({(model, name)}) if name else frozenset())
        case Chat(conversation=name) | Complete(conversation=name) | Save(conversation=name) if (
            name
        ):
            return Claims(shared | {(model, name)})
        case _:
            return Claims(shared)


def model_of(path: Path | None, main: Path | None) -> Path | str:
    """The claim of a model."""
    return MAIN if path is None or path == main else path
