"""Bridge: the events of one engine request as an async iterator on the server's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TypeVar, cast

from engine.client import Engine, RequestHandle
from engine.errors import EngineError
from engine.messages import (
    Event,
    Failed,
    Finished,
    Load,
    LoadProgress,
    ModelLoaded,
    ModelMoved,
    ModelUnloaded,
    PromptProgress,
    Request,
    Text,
    Thought,
    ToolCallDelta,
)

T = TypeVar("T", bound=Event)
R = TypeVar("R")


class Door:
    """Requests of several clients to one engine, each with events of its own."""

    def __init__(self, notify: Callable[[Event], None] = lambda event: None) -> None:
        """`notify` is that of `Engine`."""
        self.engine = Engine(self._unasked)
        self._notify = notify
        self._resident: ModelLoaded | None = None

    @property
    def resident(self) -> tuple[ModelLoaded, ...]:
        """The loaded models, the main one first."""
        return () if self._resident is None else (self._resident,)

    def start(self) -> None:
        """Start the engine's thread."""
        self.engine.start()

    def stop(self) -> None:
        """Cancel all requests and end the engine's thread."""
        self.engine.stop()

    def submit(
        self, request: Request, deliver: Callable[[Event], None], client: str = ""
    ) -> RequestHandle:
        """Queue a request, from any thread; `deliver` gets its events on the engine's thread."""

        def noted(event: Event) -> None:
            self._note(event)
            deliver(event)

        return self.engine.submit(request, noted)

    def _unasked(self, event: Event) -> None:
        self._note(event)
        self._notify(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, ModelLoaded):
            self._resident = event
        elif isinstance(event, ModelMoved):
            self._resident = event.loaded
        elif isinstance(event, ModelUnloaded):
            self._resident = None


def is_final(request: Request, event: Event) -> bool:
    """Whether an event is the last of its request."""
    if isinstance(event, ModelUnloaded):
        return not isinstance(request, Load)  # Failed follows
    if isinstance(event, Finished):
        return event.last
    return not isinstance(event, Text | Thought | ToolCallDelta | PromptProgress | LoadProgress)


async def events(door: Door, request: Request, client: str = "") -> AsyncGenerator[Event, None]:
    """The events of a request up to the final one; raises EngineError instead of Failed.

    Closing the generator early cancels the request. The engine never waits for a reader.
    """
    loop = asyncio.get_running_loop()
    arrived: deque[Event] = deque()
    wake = asyncio.Event()
    is_waking = False

    def deliver(event: Event) -> None:
        nonlocal is_waking
        arrived.append(event)
        if not is_waking:
            is_waking = True
            with suppress(RuntimeError):  # the loop is closed: nobody reads
                loop.call_soon_threadsafe(wake.set)

    handle = door.submit(request, deliver, client)
    is_over = False
    try:
        while not is_over:
            await wake.wait()
            wake.clear()
            is_waking = False
            while arrived:
                event = arrived.popleft()
                is_over = is_final(request, event)
                if isinstance(event, Failed):
                    raise EngineError(event.message, event.remedy, event.fault)
                yield event
    finally:
        if not is_over:
            handle.cancel()


async def answer(door: Door, request: Request, kind: type[T], client: str = "") -> T:
    """The event of type `kind` that ends a request; raises EngineError."""
    last: Event | None = None
    async for event in events(door, request, client):
        last = event
    assert isinstance(last, kind), "a request ended with another event"
    return last


async def in_thread(work: Callable[[], R]) -> R:
    """What `work` returns on a thread that ends with it: a pool's would outlive the server."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[R] = loop.create_future()

    def finish(value: R | None, error: BaseException | None) -> None:
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast(R, value))

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as found:  # noqa: BLE001  raised where the result is awaited
            error = found
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(finish, value, error)

    threading.Thread(target=run, name="server files", daemon=True).start()
    return await result
