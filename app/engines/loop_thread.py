"""Background thread that runs an asyncio event loop; started by the first coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_JOIN_SECONDS = 3.0


class LoopThread:
    """Its methods are called on the GUI thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(_DaemonThreads())
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name=self._name, daemon=True
            )
            self._thread.start()
        return self._loop

    def stop(self) -> None:
        """Cancel all work, and end the thread; a later use of `loop` starts another one."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_SECONDS)
            self._loop = self._thread = None


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each blocking call on a daemon thread: one that never returns does not prevent quitting.

    The interpreter waits at its end for the threads of a `ThreadPoolExecutor`.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = Future[T]()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  (whoever waits for it gets it)
                future.set_exception(error)

        threading.Thread(target=work, name="blocking call", daemon=True).start()
        return future


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: runs the loop, and lets cancelled work clean up at the end."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks: set[asyncio.Task[Any]] = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
