"""Open file: a file of which all that is read must be of one version, under whatever name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from engine.errors import Fault, FaultKind, ModelFileError
from engine.machine import disk_files

_CHUNK_BYTES = 1 << 20  # hashed between cancellation checks


class OpenFile:
    """A file open for reading until `close`; used by one thread at a time, but for `check`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._file = FileIO(disk_files.system_path(path))
        self._status = self._now()

    @property
    def size_bytes(self) -> int:
        """Its size when it was opened."""
        return self._status[0]

    def fileno(self) -> int:
        """The file descriptor."""
        return self._file.fileno()

    def read(self, offset: int, size: int) -> bytearray:
        """The bytes at an offset; raises OSError, and ModelFileError if there are fewer now."""
        found = bytearray(size)
        view, done = memoryview(found), 0
        self._file.seek(offset)
        while done < size:
            count = self._file.readinto(view[done:])
            if not count:
                raise self.changed()
            done += count
        return found

    def sha256(self, checkpoint: Callable[[], None] = lambda: None) -> str:
        """SHA-256 of its contents in hexadecimal; raises as `read`, and what `checkpoint` raises."""
        digest = hashlib.sha256()
        for at in range(0, self.size_bytes, _CHUNK_BYTES):
            checkpoint()
            digest.update(self.read(at, min(_CHUNK_BYTES, self.size_bytes - at)))
        return digest.hexdigest()

    def check(self) -> None:
        """Raise ModelFileError if the file was written to since it was opened."""
        if self._now() != self._status:
            raise self.changed()

    def check_name(self) -> None:
        """Raise ModelFileError if another file has its name now, or none."""
        try:
            is_same = os.path.samestat(
                os.fstat(self.fileno()), os.stat(disk_files.system_path(self.path))
            )
        except OSError:
            is_same = False
        if not is_same:
            raise self.changed()

    def changed(self) -> ModelFileError:
        """The error of a file that another program writes to."""
        return ModelFileError(
            f"The file {self.path.name} has changed while it was read.",
            "Wait until no other program writes it, then try again.",
            Fault(FaultKind.UNREADABLE, "it has changed while it was read"),
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _now(self) -> tuple[int, int]:
        """Size and modification time, which change with the contents."""
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns
