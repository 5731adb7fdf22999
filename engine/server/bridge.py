"""Bridge: the events of one engine request as an async iterator on the server's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TypeVar, cast

from engine.client import Engine
from engine.errors import Cancelled, EngineError
from engine.messages import (
    Event,
    Failed,
    Finished,
    Load,
    LoadProgress,
    ModelUnloaded,
    PromptProgress,
    Request,
    Text,
    Thought,
    ToolCallDelta,
)

T = TypeVar("T", bound=Event)
R = TypeVar("R")


def is_final(request: Request, event: Event) -> bool:
    """Whether an event is the last of its request."""
    if isinstance(event, ModelUnloaded):
        return not isinstance(request, Load)  # Failed follows
    if isinstance(event, Finished):
        return event.last
    return not isinstance(event, Text | Thought | ToolCallDelta | PromptProgress | LoadProgress)


async def events(engine: Engine, request: Request, client: str = "") -> AsyncGenerator[Event, None]:
    """The events of a request up to the final one; raises EngineError instead of Failed, and
    Cancelled for a load that others cancelled.

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

    handle = engine.submit(request, deliver, client=client)
    is_over = False
    try:
        while not is_over:
            if wake.is_set():
                await asyncio.sleep(0)  # others have their turn, however fast events come
            await wake.wait()
            wake.clear()
            is_waking = False
            for _ in range(len(arrived)):
                event = arrived.popleft()
                is_over = is_final(request, event)
                if isinstance(event, ModelUnloaded) and isinstance(request, Load):
                    is_over = handle.is_cancelled
                    if is_over:
                        raise Cancelled
                if isinstance(event, Failed):
                    raise EngineError(event.message, event.remedy, event.fault)
                yield event
    finally:
        if not is_over:
            handle.cancel()


async def answer(engine: Engine, request: Request, kind: type[T], client: str = "") -> T:
    """The event of type `kind` that ends a request; raises EngineError and Cancelled."""
    last: Event | None = None
    async for event in events(engine, request, client):
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
