"""Files of exported chats: safe names, and content that is complete or not there."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from app.chat.transfer.faults import TransferError
from app.system.file_advice import advice
from app.system.file_names import safe_name
from app.system.translation import tr
from engine import disk_files


class FreePaths:
    """Paths in a folder of files that do not exist, for titles of chats."""

    def __init__(self, folder: Path, ending: str) -> None:
        self._folder, self._ending = folder, ending
        self._used: set[str] = set()

    def path(self, title: str) -> Path:
        """The path for one more chat; a number tells chats of one title apart."""
        stem = safe_name(title, tr("Chat"))
        names = (
            f"{stem} {count}.{self._ending}" if count > 1 else f"{stem}.{self._ending}"
            for count in itertools.count(1)
        )
        free = (each for each in names if each.casefold() not in self._used)
        name = next(each for each in free if not (self._folder / each).exists())
        self._used.add(name.casefold())
        return self._folder / name


@contextmanager
def replaced(path: Path) -> Generator[IO[bytes]]:
    """A file that replaces `path` when all is written; raises TransferError, and then it does not."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        disk_files.make_folder(path.parent)
        try:
            with open(disk_files.system_path(fresh), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            disk_files.replace(fresh, path)
        except BaseException:
            disk_files.delete(fresh)
            raise
        disk_files.sync_folder(path.parent)
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> TransferError:
    """The error of a file that could not be written."""
    return TransferError(
        tr("{path} could not be written: {reason}.", path=path, reason=error.strerror or error),
        advice(error, tr("Check that the folder can be written to and that the disk is not full.")),
    )
