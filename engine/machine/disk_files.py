"""Changes of files that Windows may refuse for a while: replacing, renaming, deleting, writing whole.

Windows lets nobody replace, rename or delete a file that a program has open without sharing it, as a
virus scanner or an indexer does for a moment after each change. Such a refusal is tried again, for a
limited time. Elsewhere no refusal is of that kind. Call nothing here on the thread of a window.

This module does not import torch.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
Pause = Callable[[float], object]  # waits for so many seconds; may raise to stop
_Cause = tuple[type[BaseException], BaseException, object]  # as sys.exc_info has it

# Windows' errors of a file that is open elsewhere: ERROR_ACCESS_DENIED (that of a missing right too,
# which waiting does not mend), ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION, ERROR_DIR_NOT_EMPTY (of
# a folder in which files are about to be deleted), ERROR_DELETE_PENDING, ERROR_USER_MAPPED_FILE.
_BUSY = frozenset((5, 32, 33, 145, 303, 1224))
_BUSY_SECONDS = 2.0  # for which a refused change is tried again
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25  # seconds between two attempts
_LONG = 240  # characters of a path: Windows allows 260, of a folder 248, unless it is marked
_MARK, _SHARE = "\\\\?\\", "\\\\"


def is_busy(error: OSError) -> bool:
    """Whether Windows refused a change because a program has the file open, as far as it tells.

    Of a file that cannot be opened the C library tells no more than that access was denied.
    """
    code = getattr(error, "winerror", None)
    return code in _BUSY or (sys.platform == "win32" and not code and error.errno == errno.EACCES)


def retried(
    change: Callable[[], T], seconds: float = _BUSY_SECONDS, pause: Pause = time.sleep
) -> T:
    """Do a change, again and again while Windows says that a file is open.

    Waits for so many seconds in all, by no clock: one of Windows counts the computer's sleep. Raises
    the last OSError, and what `pause` raises.
    """
    waited, wait = 0.0, _FIRST_PAUSE
    while True:
        try:
            return change()
        except OSError as error:
            if not is_busy(error) or waited + wait > seconds:
                raise
        pause(wait)
        waited += wait
        wait = min(2 * wait, _LONGEST_PAUSE)


def replace(
    source: Path, target: Path, *, seconds: float = _BUSY_SECONDS, pause: Pause = time.sleep
) -> None:
    """Rename a file, over another one if there is one, also one marked as read-only.

    Raises OSError, and what `pause` raises.
    """
    old, new = system_path(source), system_path(target)
    retried(lambda: _unmarked(new, lambda: os.replace(old, new)), seconds, pause)


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder. Raises OSError; where a file has the name, that is replaced, but on
    Windows it is an error.
    """
    retried(lambda: os.rename(system_path(source), system_path(target)))


def delete(path: Path) -> None:
    """Delete a file, also one marked as read-only; one that is not there is no error.

    Raises OSError.
    """
    name = system_path(path)
    with suppress(FileNotFoundError):
        retried(lambda: _unmarked(name, lambda: os.unlink(name)))


def delete_folder(path: Path) -> None:
    """Delete a folder with all in it, but no link to one; one that is not there is no error.

    Raises OSError.
    """

    def unmark(change: Callable[[str], None], name: str, cause: _Cause) -> None:
        if change not in (os.unlink, os.rmdir):  # a folder that cannot be listed, a link
            raise cause[1]
        _unmarked(name, lambda: change(name))

    with suppress(FileNotFoundError):
        retried(lambda: shutil.rmtree(system_path(path), onerror=unmark))


def read_bytes(path: Path) -> bytes:
    """The contents of a small file that another program may just be replacing. Raises OSError."""

    def read() -> bytes:
        with FileIO(system_path(path)) as file:
            return file.readall()

    return retried(read)


def write(path: Path, pieces: Iterable[bytes | memoryview], *, temporary: str = "") -> int:
    """Write a file by atomic replace, for its owner only; returns its size in bytes.

    An existing file at `path` stays until the new one is synced to the disk. What a crash leaves is
    called `temporary`, or else by a random name that ends in ".tmp". The new name is on the disk
    after `sync_folder`. Raises OSError, and what `pieces` raises.
    """
    fresh = path.with_name(temporary or f".{path.name}.{secrets.token_hex(4)}.tmp")
    if temporary:
        delete(fresh)
    try:
        with FileIO(system_path(fresh), "x", opener=_for_owner) as file:
            size = sum(_write_all(file, piece) for piece in pieces)
            os.fsync(file.fileno())
        replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            delete(fresh)
        raise
    return size


def make_folder(path: Path) -> None:
    """Make a folder and those it is in, where they are not there. Raises OSError."""
    os.makedirs(system_path(path), exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries of renamed files to the disk. Raises OSError; nothing on Windows."""
    if sys.platform == "win32":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def system_path(path: Path, platform: str = sys.platform) -> str:
    """The path as the system takes it: on Windows, a long one is marked so that it has no limit."""
    text = str(path)
    if platform != "win32" or len(text) < _LONG or text.startswith(_MARK):
        return text
    text = os.path.abspath(text) if sys.platform == platform else text
    return f"{_MARK}UNC{text[1:]}" if text.startswith(_SHARE) else _MARK + text


def _unmarked(name: str, change: Callable[[], None]) -> None:
    """Do a change that removes a file which may be marked as read-only."""
    try:
        change()
    except PermissionError:
        try:
            is_marked = not os.lstat(name).st_mode & stat.S_IWRITE
        except OSError:
            is_marked = False
        if sys.platform != "win32" or not is_marked:
            raise
        os.chmod(name, stat.S_IWRITE)  # elsewhere the mark prevents neither
        change()


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_all(file: FileIO, piece: bytes | memoryview) -> int:
    view = memoryview(piece).cast("B")
    left = view
    while left:
        left = left[file.write(left) :]
    return len(view)
