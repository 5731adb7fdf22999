"""Lock file of the store, and moving a damaged store aside.

The lock file is next to the database and keeps a second app out. On a drive without locks,
SQLite's locks still protect the database file.
"""

from __future__ import annotations

import time
from pathlib import Path

from app.store.schema import StoreError
from app.system.translation import tr
from engine import FileLock, FileLockHeld, disk_files


def lock_store(path: Path) -> FileLock:
    """Lock the store at `path` against a second app; raises `StoreError` if already locked."""
    try:
        return FileLock(path.with_name(path.name + ".lock"))
    except FileLockHeld as error:
        raise StoreError(
            tr("Tokonoma is already open and uses these chats."),
            tr("Switch to its window, or close it and try again."),
            temporary=True,
        ) from error


def set_aside(path: Path) -> Path:
    """Rename a damaged store and its write-ahead log; returns the new path."""
    lock = lock_store(path)
    try:
        aside = path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
        while aside.exists():
            aside = aside.with_name(f"{aside.stem}-again{aside.suffix}")
        # The log first: SQLite would apply an old log to a new database of the same name.
        for end in ("-wal", "-shm", ""):
            part = path.with_name(path.name + end)
            if part.exists():
                disk_files.replace(part, aside.with_name(aside.name + end))
        return aside
    finally:
        lock.release()
