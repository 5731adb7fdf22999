"""BackgroundTask: runs uninterruptible work on a helper thread while polling for cancellation.

For calls that take no checkpoint, such as building a tokenizer or tokenizing a very long prompt.
After a cancellation the work runs to its end and its result is discarded; `abandon` ends it sooner.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.02  # between two calls of the checkpoint
_BRIEF_SECONDS = 0.05  # work that takes less is waited for: passes of the model take longer
_stack_size = threading.Lock()


class Abandoned(SystemExit):
    """Raised in work whose result nobody wants any more. A thread that it ends is silent about it."""


class NoStack(Exception):
    """The system gives no thread a stack of the size that was asked for."""


class BackgroundTask(Generic[T]):
    """One function call on a new thread, started at once."""

    def __init__(self, work: Callable[[], T], name: str, stack_bytes: int = 0) -> None:
        """`stack_bytes` is the size of the thread's stack; 0: the usual one. Raises NoStack."""
        self._work = work
        self._done: list[T] = []
        self._failed: BaseException | None = None
        # A daemon thread: quitting does not wait for work whose result is discarded.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        if not stack_bytes:
            self._thread.start()
            return
        with _stack_size:  # a setting of the process; a thread that starts meanwhile has more
            try:
                before = threading.stack_size(stack_bytes)
            except ValueError as error:
                raise NoStack from error
            try:
                self._thread.start()
            except (RuntimeError, MemoryError) as error:  # under a limit of address space
                raise NoStack from error
            finally:
                threading.stack_size(before)

    @property
    def finished(self) -> bool:
        """Whether the work has returned or raised."""
        return not self._thread.is_alive()

    @property
    def failed(self) -> BaseException | None:
        """The exception the work raised, if any."""
        return self._failed

    def abandon(self) -> None:
        """Raise Abandoned in the work, at its next step in Python; a call of a library ends first."""
        if (thread := self._thread.ident) is not None and self._thread.is_alive():
            set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
            set_exception(ctypes.c_ulong(thread), ctypes.py_object(Abandoned))

    def wait(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Wait until the work has returned or raised; raises only what `checkpoint` raises."""
        while self._thread.is_alive():
            checkpoint()
            self._thread.join(_POLL_SECONDS)

    def polled(self, checkpoint: Callable[[], None]) -> Iterator[None]:
        """Yield until the work has returned or raised; of brief work not once.

        A caller that runs a pass of the model per yield would delay brief work by a whole pass.
        Raises what `checkpoint` raises.
        """
        self._thread.join(_BRIEF_SECONDS)
        while self._thread.is_alive():
            checkpoint()
            yield None

    def result(self, checkpoint: Callable[[], None] = lambda: None) -> T:
        """Wait and return the result, or raise the work's exception or `checkpoint`'s."""
        self.wait(checkpoint)
        if self._failed is not None:
            raise self._failed
        return self._done[0]

    def _run(self) -> None:
        try:
            self._done.append(self._work())
        except BaseException as error:  # noqa: BLE001  raised again by `result`
            self._failed = error


def in_background(
    work: Callable[[], T], name: str, checkpoint: Callable[[], None]
) -> Generator[None, None, T]:
    """Run work on a helper thread, and yield until it is done: of brief work not once.

    Tokenizing a very long prompt takes seconds. Raises what the work or `checkpoint` raises.
    """
    task = BackgroundTask(work, name)
    yield from task.polled(checkpoint)
    return task.result(checkpoint)
