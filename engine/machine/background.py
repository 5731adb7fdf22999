"""BackgroundTask: runs uninterruptible work on a helper thread while polling for cancellation.

For calls that take no checkpoint, such as building a tokenizer or tokenizing a very long prompt.
After a cancellation the work runs to its end and its result is discarded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.02  # between two calls of the checkpoint
_BRIEF_SECONDS = 0.05  # work that takes less is waited for: passes of the model take longer
_stack_size = threading.Lock()


class BackgroundTask(Generic[T]):
    """One function call on a new thread, started at once."""

    def __init__(self, work: Callable[[], T], name: str, stack_bytes: int = 0) -> None:
        """`stack_bytes` is the size of the thread's stack; 0: the usual one."""
        self._work = work
        self._done: list[T] = []
        self._failed: BaseException | None = None
        # A daemon thread: quitting does not wait for work whose result is discarded.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        if not stack_bytes:
            self._thread.start()
            return
        with _stack_size:  # a setting of the process; a thread that starts meanwhile has more
            before = threading.stack_size(stack_bytes)
            try:
                self._thread.start()
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
