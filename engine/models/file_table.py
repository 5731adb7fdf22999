"""File table: a table of a model file whose rows are read one by one when tokens need them.

Some models have an embedding of every token for every layer: gigabytes, of which one token needs a
few kilobytes. Reads go through the system's page cache, so rows of usual tokens stay in memory as
long as there is room for them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import Fault, FaultKind, ModelFileError
from engine.machine import disk_files
from kernels.weights.formats import Format
from kernels.weights.weight import Weight


class FileTable:
    """Rows of a tensor that stays in its file, which is open as long as this is referenced."""

    def __init__(self, path: Path, offset: int, format: Format, shape: Sequence[int]) -> None:
        """The tensor [rows, columns] at an offset of a file; raises ModelFileError."""
        self.shape = tuple(shape)
        self._path, self._offset, self._format = path, offset, format
        self._row_bytes = format.row_bytes(self.shape[-1])
        self._lock = threading.Lock()
        try:
            self._file = os.open(
                disk_files.system_path(path), os.O_RDONLY | getattr(os, "O_BINARY", 0)
            )
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from error
        weakref.finalize(self, os.close, self._file)
        self._status = self._now()
        if hasattr(os, "posix_fadvise"):  # the next token's row is elsewhere
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)

    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` [T] i64, f32 [T, columns]; every row is read once.

        Raises IndexError for a row out of range, ModelFileError when the file cannot be read.
        """
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.shape[0]:
            raise IndexError(f"a row of {ids.tolist()} is not in a table of {self.shape[0]:,}")
        wanted, places = ids.unique(return_inverse=True)
        if not len(wanted):
            return torch.empty(0, self.shape[-1])
        rows = wanted.tolist()
        if hasattr(os, "posix_fadvise") and len(rows) > 1:  # the disk then reads several at a time
            for row in rows:
                os.posix_fadvise(self._file, *self._place(row), os.POSIX_FADV_WILLNEED)
        stored = b"".join(map(self._read, rows))
        if self._now() != self._status:
            raise _unreadable(self._path, "it has changed since it was opened")
        found = Weight.from_bytes(stored, self._format, (len(wanted), self.shape[-1]))
        # Not [places], which runs on torch's own threads: they and the native kernels' would wait for
        # the same cores, by up to 8 ms for a row.
        return found.dense().index_select(0, places)

    def _read(self, row: int) -> bytes:
        try:
            found = self._read_at(*self._place(row))
        except OSError as error:
            raise _unreadable(self._path, error.strerror or str(error)) from error
        if len(found) != self._row_bytes:
            raise _unreadable(self._path, "it is shorter than when it was opened")
        return found

    def _now(self) -> tuple[int, int]:
        """Size and modification time of the file."""
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns

    def _place(self, row: int) -> tuple[int, int]:
        """Offset in the file and bytes of a row."""
        return self._offset + row * self._row_bytes, self._row_bytes

    def _read_at(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file, size, offset)
        with self._lock:  # Windows
            os.lseek(self._file, offset, os.SEEK_SET)
            return os.read(self._file, size)


def _unreadable(path: Path, reason: str) -> ModelFileError:
    return ModelFileError(
        f"The embeddings in {path.name} cannot be read: {reason}.",
        "Check the disk that the file lies on, and load the model again.",
        Fault(FaultKind.UNREADABLE, reason),
    )
