"""Work done beside the engine's thread, so that Cancel is looked at while it runs.

For work that cannot be interrupted from inside: building a tokenizer, or cutting a pasted book
into tokens. What is given up runs to its end unheard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_PATIENCE = 0.02  # seconds between two looks at Cancel


class BackgroundTask(Generic[T]):
    """One piece of work on a thread of its own, begun at once."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._work = work
        self._done: list[T] = []
        self._failed: BaseException | None = None
        # A daemon: a person who quits does not wait for work nobody wants any more.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def failed(self) -> BaseException | None:
        """What the work has raised, if it has."""
        return self._failed

    def wait(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Wait until the work has ended, however it has; raises what `checkpoint` raises."""
        while self._thread.is_alive():
            checkpoint()
            self._thread.join(_PATIENCE)

    def result(self, checkpoint: Callable[[], None] = lambda: None) -> T:
        """What the work returned or raised; `checkpoint` may raise `Cancelled` while it is awaited."""
        self.wait(checkpoint)
        if self._failed is not None:
            raise self._failed
        return self._done[0]

    def _run(self) -> None:
        try:
            self._done.append(self._work())
        except BaseException as error:  # noqa: BLE001  told to whoever asks for the result
            self._failed = error
