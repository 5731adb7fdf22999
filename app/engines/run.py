"""Runs: requests that are being worked on, and the coroutines that wait for what they bring.

A coroutine is a function that reads from top to bottom what otherwise is a callback for each event.
It goes on on the GUI thread, at once when what it waits for arrives, so that the order of what
engines deliver is the order in which it is handled. Needs no event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar, assert_never

from app.domain.deltas import Delta
from engine import (
    AdaptersSet,
    ConstraintChecked,
    Detokenized,
    DevicesFound,
    DraftSet,
    Embedded,
    Event,
    Failed,
    Finished,
    Load,
    LoadProgress,
    LogitsComputed,
    MetricsRead,
    ModelLoaded,
    ModelMoved,
    ModelUnloaded,
    PromptProgress,
    Request,
    Reranked,
    Scored,
    SnapshotLoaded,
    SnapshotSaved,
    SpeedMeasured,
    TemplateApplied,
    Text,
    TextForgotten,
    Thought,
    Tokenized,
    TokensCounted,
    ToolCallDelta,
    Unload,
)

T = TypeVar("T")
E = TypeVar("E")

_log = logging.getLogger(__name__)


class Waiting(Generic[T]):
    """What a coroutine waits for: values that come one after the other."""

    def __init__(self) -> None:
        self._came: deque[T] = deque()
        self.wake: Callable[[], None] | None = None  # goes on with the coroutine

    def put(self, value: T) -> None:
        """Give a value to the coroutine that waits, or to the next one that does."""
        self._came.append(value)
        if (wake := self.wake) is not None:
            self.wake = None
            wake()

    def __await__(self) -> Generator[Waiting[Any], None, T]:
        while not self._came:
            yield self
        return self._came.popleft()


def start(coroutine: Coroutine[Any, None, None], failed: Callable[[Exception], None]) -> None:
    """Run a coroutine until it waits, and then whenever what it waits for has come.

    `failed` is called with an exception that ends it.
    """

    def step() -> None:
        try:
            waiting: Waiting[Any] = coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):  # that of what it waits for: the app quits
            return
        except Exception as error:  # noqa: BLE001  (other coroutines go on)
            _log.exception("%s ended", coroutine.__name__)
            try:
                failed(error)
            except Exception:  # noqa: BLE001  (as above)
                _log.exception("%s could not be ended", coroutine.__name__)
        else:
            waiting.wake = step

    step()


class RequestFailed(Exception):
    """An engine could not do what was asked of it."""

    def __init__(self, event: Failed) -> None:
        super().__init__(event.message)
        self.event = event


class Handle(Protocol):
    """What an engine returns for a request."""

    @property
    def id(self) -> int:
        """Unique in the process."""
        ...

    def cancel(self) -> None:
        """End it soon; its final event still comes."""
        ...


class Run:
    """A request that an engine works on: `async for` gives its events in batches of one kind.

    A batch is what has come together, or one event if it is neither text nor progress. A run that
    nothing waits for goes on all the same.
    """

    def __init__(self, request: Request, handle: Handle) -> None:
        self.request = request
        self.is_cancelled = False
        self.is_over = False  # its final event has come
        self._handle = handle
        self._batches = Waiting[tuple[list[Event], bool]]()  # each with whether it is the last
        self._is_read = False  # the final event was given to the coroutine

    @property
    def id(self) -> int:
        """Unique in the process."""
        return self._handle.id

    def cancel(self) -> None:
        """End it soon; its final event still comes."""
        if not self.is_over:
            self.is_cancelled = True
            self._handle.cancel()

    def receive(self, batch: list[Event]) -> bool:
        """Pass on events that have come, on the GUI thread; returns whether the last one has."""
        self.is_over = self._is_last(batch[-1])
        self._batches.put((batch, self.is_over))
        return self.is_over

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> list[Event]:
        if self._is_read:
            raise StopAsyncIteration
        batch, self._is_read = await self._batches
        return batch

    async def result(self, kind: type[E]) -> E:
        """Its final event; raises RequestFailed if that is Failed."""
        async for batch in self:
            match batch[-1]:
                case Failed() as event:
                    raise RequestFailed(event)
                case event if isinstance(event, kind):
                    return event
                case _:
                    pass
        raise TypeError(f"{type(self.request).__name__} ended without {kind.__name__}")

    def _is_last(self, event: Event) -> bool:
        """Whether the request is over with this event."""
        match event:
            case LoadProgress() | PromptProgress() | ModelMoved():
                return False
            case Text() | Thought() | ToolCallDelta():
                return False
            case Finished():
                return event.last
            case ModelUnloaded():
                # A failing load first reports that the model before it was unloaded.
                failing = isinstance(self.request, Load) and not self.is_cancelled
                return isinstance(self.request, Unload) or not failing
            case ModelLoaded() | DevicesFound() | Failed() | AdaptersSet() | DraftSet():
                return True
            case SnapshotLoaded() | SnapshotSaved() | TokensCounted() | MetricsRead():
                return True
            case Embedded() | Reranked() | Scored() | LogitsComputed() | SpeedMeasured():
                return True
            case ConstraintChecked():
                return True
            case Tokenized() | Detokenized() | TemplateApplied() | TextForgotten():
                return True
            case _:
                assert_never(event)


class AnswerRun(Protocol):
    """An answer that an engine writes, local or remote."""

    @property
    def id(self) -> int:
        """Unique in the process."""
        ...

    def cancel(self) -> None:
        """End it soon."""
        ...

    def deltas(self) -> AsyncIterator[Delta]:
        """What is written, in pieces of what has come together; raises AnswerFailed."""
        ...
