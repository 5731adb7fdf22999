"""Reads of large files past the system's page cache, and the measured speed of such reads.

A file larger than the memory that is read over and over never profits from the cache: the part read
next is the one that was dropped first, and what other programs need is dropped with it. Where the
system or the file system has no such reads, the cached pages are dropped after each read.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.machine import disk_files

# Errors of a flag or an alignment that a file system does not support.
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
_ALIGNMENT = 4096  # bytes, of offsets, sizes and memory: at least the block size of common disks
_MEASURED_BYTES, _MEASURED_PIECE = 96 << 20, 4 << 20

_speeds: dict[int, float] = {}  # bytes/s by device, for the life of the process


class ReadBuffer:
    """Memory that a `DirectFile` reads into; used by one thread at a time."""

    def __init__(self, size: int) -> None:
        """For reads of at most `size` bytes."""
        self.size = size
        self._memory = mmap.mmap(-1, _up(size) + _ALIGNMENT)
        self.bytes = np.frombuffer(self._memory, dtype=np.uint8)


class DirectFile:
    """A file open for reading at any place, from any thread, until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._lock = threading.Lock()
        self._direct = bool(_direct_flag())
        self._file = _open(path, _direct_flag())
        if self._file < 0:
            self._direct = False
            self._file = _open(path, 0)
        if sys.platform == "darwin":
            import fcntl  # noqa: PLC0415  (not on Windows)

            with suppress(OSError):
                fcntl.fcntl(self._file, fcntl.F_NOCACHE, 1)

    def status(self) -> os.stat_result:
        """The status of the open file, whatever file has its name now."""
        return os.fstat(self._file)

    def read(self, offset: int, size: int, buffer: ReadBuffer) -> NDArray[np.uint8]:
        """The bytes [size] u8 at an offset, in the buffer, where the next read overwrites them.

        Raises OSError, and EOFError when the file ends before.
        """
        start = offset // _ALIGNMENT * _ALIGNMENT
        end = offset + size
        into = buffer.bytes[: _up(end - start)]
        done = 0
        while start + done < end:
            count = self._read_at(start + done, into[done:])
            if count == 0:
                raise EOFError(f"{self.path.name} ends at byte {start + done:,}")
            # A short read that is not whole blocks is the end of the file, or is read again.
            done += count if start + done + count >= end else count // _ALIGNMENT * _ALIGNMENT
            if count < _ALIGNMENT and start + done < end:
                raise EOFError(f"{self.path.name} ends at byte {start + done + count:,}")
        if not self._direct:
            self._drop(start, end)
        return into[offset - start : end - start]

    def close(self) -> None:
        """Close the file; no read may be running."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read_at(self, offset: int, into: NDArray[np.uint8]) -> int:
        if not hasattr(os, "preadv"):  # Windows
            with self._lock:
                os.lseek(self._file, offset, os.SEEK_SET)
                found = os.read(self._file, len(into))
            into[: len(found)] = np.frombuffer(found, dtype=np.uint8)
            return len(found)
        try:
            return os.preadv(self._file, [into.data], offset)
        except OSError as error:
            if not self._direct or error.errno not in _REFUSED:
                raise
        with self._lock:  # a file system that opens such files, but does not read them
            if self._direct:
                self._clear_direct()
        return os.preadv(self._file, [into.data], offset)

    def _clear_direct(self) -> None:
        import fcntl  # noqa: PLC0415  (not on Windows)

        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags & ~_direct_flag())
        self._direct = False

    def _drop(self, start: int, end: int) -> None:
        """Drop the cached pages of a byte range."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, start, end - start, os.POSIX_FADV_DONTNEED)


def read_speed(path: Path) -> float:
    """Speed of reading large files past the cache in bytes/s, measured once for each disk; 0 for a
    tiny or unreadable file.

    It reads at most 96 MB from the middle: some 0.1 s from an SSD, half a second from a hard disk.
    """
    try:
        file = DirectFile(path)
    except OSError:
        return 0.0
    try:
        status = file.status()
        if status.st_dev not in _speeds and (speed := _measured(file, status.st_size)):
            _speeds[status.st_dev] = speed
        return _speeds.get(status.st_dev, 0.0)
    except (OSError, EOFError):
        return 0.0
    finally:
        file.close()


def _measured(file: DirectFile, size: int) -> float:
    total = min(size, _MEASURED_BYTES) // _MEASURED_PIECE * _MEASURED_PIECE
    buffer, first = ReadBuffer(_MEASURED_PIECE), (size - total) // 2
    started = time.perf_counter()
    for at in range(first, first + total, _MEASURED_PIECE):
        file.read(at, _MEASURED_PIECE, buffer)
    return total / (time.perf_counter() - started) if total else 0.0


def _direct_flag() -> int:
    return getattr(os, "O_DIRECT", 0)


def _open(path: Path, flags: int) -> int:
    """A file descriptor; -1 if the file system refuses these flags."""
    try:
        return os.open(
            disk_files.system_path(path), os.O_RDONLY | getattr(os, "O_BINARY", 0) | flags
        )
    except OSError as error:
        if flags and error.errno in _REFUSED:
            return -1
        raise


def _up(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
