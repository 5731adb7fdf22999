"""The files around a store: the lock that keeps a second app out, and a way out of damage.

The lock is the operating system's own on a file beside the database, so a crash releases it.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

from app.store_schema import StoreError

if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        """Lock an open file, or raise `OSError` at once."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(file: int) -> None:
        """Lock an open file, or raise `OSError` at once."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


class FileLock:
    """The right to use the store at `path`, held until `release`; one holder at a time."""

    def __init__(self, path: Path) -> None:
        """Take the lock; raises `StoreError` when another holder has it, `OSError` when it cannot."""
        self._file = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take(self._file)
        except OSError as error:
            if error.errno in _HELD:
                self.release()
                raise StoreError(
                    "Tokonoma is already open and uses these conversations.",
                    "Switch to its window, or close it and try again.",
                    temporary=True,
                ) from error
            # Some network drives have no locks; SQLite's own still keep the file whole.

    def release(self) -> None:
        """Let the next one in; releasing twice is allowed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def set_aside(path: Path) -> Path:
    """Rename a store that cannot be opened, with its log; returns where it is now."""
    lock = FileLock(path)
    try:
        aside = path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
        while aside.exists():
            aside = aside.with_name(f"{aside.stem}-again{aside.suffix}")
        # The log goes first: a new database beside an old log would take it for its own.
        for end in ("-wal", "-shm", ""):
            part = path.with_name(path.name + end)
            if part.exists():
                os.replace(part, aside.with_name(aside.name + end))
        return aside
    finally:
        lock.release()
