"""Ctrl-C on the command line: the first press ends an answer early, the second the program."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(cancel: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel` when Ctrl-C is pressed; a second one raises at once."""

    def note(*_: object) -> None:
        cancel()
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
