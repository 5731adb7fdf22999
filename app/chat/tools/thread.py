"""Tool thread: an event loop of its own, on which calls of tools are carried out.

It starts with the first call, so that an app without tools has neither the thread nor its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QObject

from app.engines.handover import Handover
from app.engines.run import Waiting

T = TypeVar("T")
_JOIN_SECONDS = 3.0


class Work(Generic[T]):
    """A coroutine on the thread: its result is awaited on the GUI thread."""

    def __init__(self) -> None:
        self.came = Waiting[T | BaseException]()
        self.future: Future[T] | None = None

    def cancel(self) -> None:
        """Stop it: its result is a CancelledError."""
        if self.future is not None:
            self.future.cancel()

    async def result(self) -> T:
        """What it returned; raises what it raised, or CancelledError."""
        found = await self.came
        if isinstance(found, BaseException):
            raise found
        return found


class ToolThread(QObject):
    """Runs coroutines; all its methods but `tell` are called on the GUI thread."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._told = Handover[Callable[[], None]](_call_all, self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name="tools", daemon=True
            )
            self._thread.start()
        return self._loop

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Begin a coroutine on the thread."""
        work = Work[T]()
        work.future = future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)

        def ended(done: Future[T]) -> None:
            found: T | BaseException
            if done.cancelled():
                found = asyncio.CancelledError()
            else:
                found = done.exception() or done.result()
            self.tell(lambda: work.came.put(found))

        future.add_done_callback(ended)
        return work

    def tell(self, call: Callable[[], None]) -> None:
        """Call something on the GUI thread soon, from any thread."""
        self._told.put(call)

    async def ask(self, call: Callable[[Callable[[T], None]], None]) -> T:
        """Await on the tools' thread what is given, on the GUI thread, to the callback of `call`."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()

        def answer(value: T) -> None:
            loop.call_soon_threadsafe(lambda: answered.done() or answered.set_result(value))

        self.tell(lambda: call(answer))
        return await answered

    def stop(self) -> None:
        """Cancel all work, and end the thread."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_SECONDS)
            self._loop = self._thread = None


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: runs the loop, and lets cancelled work clean up at the end."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
