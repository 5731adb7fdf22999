"""The files around a store: the lock that keeps a second app out, and a way out of damage.

The lock is on a file beside the database; where a drive has no locks, SQLite's own still keep the
file whole.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from app.store.schema import StoreError
from app.system.file_lock import FileLock, FileLockHeld


def lock_store(path: Path) -> FileLock:
    """Lock the store at `path` against a second app; raises `StoreError` when one has it."""
    try:
        return FileLock(path.with_name(path.name + ".lock"))
    except FileLockHeld as error:
        raise StoreError(
            "Tokonoma is already open and uses these conversations.",
            "Switch to its window, or close it and try again.",
            temporary=True,
        ) from error


def set_aside(path: Path) -> Path:
    """Rename a store that cannot be opened, with its log; returns where it is now."""
    lock = lock_store(path)
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
