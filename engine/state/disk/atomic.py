"""The lock of a snapshot folder against other processes, its unfinished files, and its errors.

This module does not import torch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import Fault, FaultKind, SnapshotError
from engine.machine.file_lock import try_lock

Checkpoint = Callable[[], None]
REPROCESS = "The conversation is processed again instead."
_LOCK = ".lock"
_POLL_SECONDS = 0.02  # between two attempts to take the lock
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")


class Damaged(SnapshotError):
    """The file is corrupt, so it can be deleted."""

    def __init__(
        self, message: str = "The saved session is damaged.", remedy: str = REPROCESS
    ) -> None:
        super().__init__(message, remedy)


class NewerVersion(SnapshotError):
    """The file is of a newer version of the app, for which it is kept."""

    def __init__(self) -> None:
        fault = Fault(FaultKind.SAVED_VERSION)
        message = "The session was saved by a newer version of the app."
        super().__init__(message, REPROCESS, fault)


def no_checkpoint() -> None:
    """The checkpoint of work that is not cancelled."""


def unreadable(error: OSError) -> SnapshotError:
    """The error for a file that the system cannot read."""
    return SnapshotError(f"The saved session cannot be read: {error.strerror or error}.", REPROCESS)


def is_temporary(name: str) -> bool:
    """Whether a file name is that of a file which `disk_files.write` has not finished."""
    return _TEMPORARY.fullmatch(name) is not None


@contextmanager
def folder_lock(
    folder: Path, *, exclusive: bool, seconds: float, checkpoint: Checkpoint = no_checkpoint
) -> Iterator[bool]:
    """Hold the folder's lock, shared or exclusive, against other threads and processes.

    Yields False when others held it for `seconds`. A process that ends releases its locks. Where
    locks are not supported, and in a folder that cannot be written to, it yields True.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("a+b")
    except OSError:
        yield True
        return
    with file:
        end = time.monotonic() + seconds
        while (
            not (locked := try_lock(file.fileno(), exclusive=exclusive)) and time.monotonic() < end
        ):
            checkpoint()
            time.sleep(_POLL_SECONDS)
        yield locked  # closing the file releases the lock
