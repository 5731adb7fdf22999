"""Keeps the reports that Rust libraries print of their panics off the standard error stream.

Such a library writes to file descriptor 2 before the panic reaches Python as an exception, so
`sys.stderr` does not see it. The descriptor is redirected to a temporary file for the time of a call;
everything else that was written in that time follows when the call has ended.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

_STDERR = 2
_REPORT = re.compile(
    rb"\n?thread '[^\n]*' (?:\(\d+\) )?panicked at [^\n]*\n[^\n]*\n"
    rb"(?:stack backtrace:\n(?: [^\n]*\n)*)?(?:note: [^\n]*\n)*"
)


class _Holder:
    """The redirection, shared by the threads inside `without_panic_reports`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callers = 0
        self._held: BinaryIO | None = None
        self._stderr = -1  # a duplicate of the descriptor, while it is redirected

    def enter(self) -> None:
        with self._lock:
            self._callers += 1
            if self._callers > 1:
                return
            with suppress(OSError):  # no descriptor 2, or no folder for temporary files
                held = tempfile.TemporaryFile()  # noqa: SIM115  closed by `leave`
                self._stderr = os.dup(_STDERR)
                os.dup2(held.fileno(), _STDERR)
                self._held = held

    def leave(self) -> None:
        with self._lock:
            self._callers -= 1
            if self._callers or self._held is None:
                return
            os.dup2(self._stderr, _STDERR)
            os.close(self._stderr)
            with self._held as held:
                self._held = None
                held.seek(0)
                others = _REPORT.sub(b"", held.read())
            with suppress(OSError):
                while others:
                    others = others[os.write(_STDERR, others) :]


_holder = _Holder()


@contextmanager
def without_panic_reports() -> Iterator[None]:
    """Drop reports of Rust panics that are printed inside the block; on any threads at once."""
    _holder.enter()
    try:
        yield
    finally:
        _holder.leave()
