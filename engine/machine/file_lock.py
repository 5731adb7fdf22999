"""Locks of the operating system on files, shared or exclusive, released when the process ends."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import ctypes
    import msvcrt

    _AT_ONCE, _EXCLUSIVE = 1, 2  # flags of LockFileEx
    _HELD = 33  # ERROR_LOCK_VIOLATION

    class _Place(ctypes.Structure):
        """OVERLAPPED of the Windows API: the byte that is locked."""

        _fields_ = (
            ("internal", ctypes.c_size_t * 2),
            ("offset", ctypes.c_uint64),
            ("event", ctypes.c_void_p),
        )

    def try_lock(file: int, *, exclusive: bool) -> bool:
        """Lock an open file; False if another lock excludes this one. Where locks are not
        supported, every caller succeeds.
        """
        # A lock of Windows hides what it covers from other programs: this byte is in no file.
        place = _Place(offset=1 << 62)
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.LockFileEx.argtypes = (
            *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32),
            ctypes.POINTER(_Place),
        )
        flags = _AT_ONCE | (_EXCLUSIVE if exclusive else 0)
        locked = kernel.LockFileEx(msvcrt.get_osfhandle(file), flags, 0, 1, 0, ctypes.byref(place))
        return bool(locked) or ctypes.get_last_error() != _HELD

else:
    import fcntl

    def try_lock(file: int, *, exclusive: bool) -> bool:
        """Lock an open file; False if another lock excludes this one. Where locks are not
        supported, every caller succeeds.
        """
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
        return True


class FileLockHeld(Exception):
    """Another process, or another lock of this one, has the file locked."""


class FileLock:
    """An exclusive lock on the file at `path`, held until `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock; raises `FileLockHeld`, or `OSError` if the file cannot be created."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not try_lock(self._file, exclusive=True):
            self.release()
            raise FileLockHeld(path)

    def release(self) -> None:
        """Release the lock; releasing twice is allowed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
