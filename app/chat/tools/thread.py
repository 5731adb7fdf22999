"""Tool thread: an event loop of its own, on which calls of tools are carried out.

It starts with the first call, so that an app without tools has neither the thread nor its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QObject

from app.engines.handover import Handover
from app.engines.loop_thread import LoopThread
from app.engines.run import Waiting

T = TypeVar("T")
_log = logging.getLogger(__name__)


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

    def __init__(self, report: Callable[[Exception], None], parent: QObject | None = None) -> None:
        """`report` is called with an exception of what `tell` is given."""
        super().__init__(parent)
        self._report = report
        self._told = Handover[Callable[[], None]](self._call_all, self)
        self._thread = LoopThread("tools")
        self._is_stopped = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        return self._thread.loop

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Begin a coroutine on the thread; after `stop` it is cancelled at once."""
        work = Work[T]()
        if self._is_stopped:
            coroutine.close()
            work.came.put(asyncio.CancelledError())
            return work
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
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: the app quits
                loop.call_soon_threadsafe(lambda: answered.done() or answered.set_result(value))

        self.tell(lambda: call(answer))
        return await answered

    def stop(self) -> None:
        """Cancel all work, and end the thread for good."""
        self._is_stopped = True
        self._thread.stop()

    def _call_all(self, calls: list[Callable[[], None]]) -> None:
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001  (the next ones are called all the same)
                _log.exception("what the tools' thread told could not be handled")
                self._report(error)
