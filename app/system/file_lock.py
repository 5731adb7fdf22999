"""Exclusive file lock of the operating system, released when the process ends."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        """Lock an open file, or raise `OSError` at once."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        """Lock an open file, or raise `OSError` at once."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_LOCKED_ERRNOS = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


class FileLockHeld(Exception):
    """Another process, or another lock of this one, has the file locked."""


class FileLock:
    """An exclusive lock on the file at `path`, held until `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock; raises `FileLockHeld`, or `OSError` if the file cannot be created."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._file)
        except OSError as error:
            if error.errno in _LOCKED_ERRNOS:
                self.release()
                raise FileLockHeld(path) from error
            # Some network drives do not support locks: there every caller succeeds.

    def release(self) -> None:
        """Release the lock; releasing twice is allowed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
