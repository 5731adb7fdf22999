"""The file that a reader extracts a document from, its limits, and why it cannot be read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from errno import EACCES
from functools import cached_property
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO

MOST_CHARACTERS = 40_000_000  # of a document's text; what is longer is cut, with a warning
MOST_TEXT_BYTES = 64_000_000  # of a text file in memory: with copies of it, 300 MB at most
MOST_BYTES = 2_000_000_000  # of a file
_PIECE = 1 << 20  # bytes


class ExtractionFault(StrEnum):
    """Why there is no text of a file."""

    UNKNOWN = "unknown"  # no format that can be read; `detail` is a `Look` if it is known
    PROTECTED = "protected"  # with a password
    DAMAGED = "damaged"
    TOO_LARGE = "too large"  # the file, or what it unpacks to
    TOO_SLOW = "too slow"  # longer than the limit of time
    MEMORY = "memory"  # more than the limit
    CRASHED = "crashed"
    MISSING = "missing"
    NOT_A_FILE = "not a file"  # a folder, a pipe, a device
    CHANGED = "changed"  # while it was read
    UNREADABLE = "unreadable"  # the system does not let it be read; `detail` is its reason
    CANCELLED = "cancelled"


class Look(StrEnum):
    """What a file is of which no text can be extracted."""

    PICTURE = "picture"
    UNREAD_PICTURE = "unread picture"  # of a format that is not read
    AUDIO = "audio"
    VIDEO = "video"
    MODEL = "model"  # of a neural network
    PROGRAM = "program"
    FONT = "font"
    DATABASE = "database"
    DISK = "disk image"
    COMPRESSED = "compressed"  # an archive of a kind that is not listed
    OLD_WORD = "old word"  # .doc
    OLD_SHEETS = "old sheets"  # .xls, also .xlsb
    OLD_SLIDES = "old slides"  # .ppt
    OUTLOOK = "outlook"  # .msg
    PAGES = "pages"  # of Apple: Pages, Numbers, Keynote
    EBOOK = "ebook"  # MOBI, AZW, CHM, DjVu
    DRAWING = "drawing"  # OpenDocument graphics
    BINARY = "binary"


class ExtractionError(Exception):
    """Raised for a file without a text."""

    def __init__(self, fault: ExtractionFault, detail: str = "") -> None:
        super().__init__(detail or fault.value)
        self.fault = fault
        self.detail = detail  # technical


@contextmanager
def _readable() -> Generator[None]:
    """Errors of the file system as ExtractionError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ExtractionError(ExtractionFault.MISSING) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ExtractionError(ExtractionFault.UNREADABLE, reason) from error


def file_state(path: Path, most_bytes: int = MOST_BYTES) -> os.stat_result:
    """What the system says of a file. Raises ExtractionError for one that is none to read."""
    with _readable():
        found = _checked(path.stat(), most_bytes)
    if not os.access(path, os.R_OK):
        raise ExtractionError(ExtractionFault.UNREADABLE, os.strerror(EACCES))
    return found


def pieces(path: Path, cancelled: Callable[[], bool] | None = None) -> Iterator[bytes]:
    """The bytes of a file as it is when it is opened, which waits for no pipe. Raises
    ExtractionError, also for a file that grows beyond the limit.
    """
    left = MOST_BYTES
    with _readable(), open(path, "rb", opener=_open_at_once) as file:
        _checked(os.fstat(file.fileno()), MOST_BYTES)
        while piece := file.read(min(_PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                raise ExtractionError(ExtractionFault.TOO_LARGE)
            if cancelled is not None and cancelled():
                raise ExtractionError(ExtractionFault.CANCELLED)
            yield piece


def sha256_of(path: Path, cancelled: Callable[[], bool] | None = None) -> str:
    """The hash of the bytes of a file. Raises ExtractionError."""
    made = hashlib.sha256()
    for piece in pieces(path, cancelled):
        made.update(piece)
    return made.hexdigest()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _checked(found: os.stat_result, most_bytes: int) -> os.stat_result:
    if not S_ISREG(found.st_mode):
        detail = "folder" if S_ISDIR(found.st_mode) else "device"
        raise ExtractionError(ExtractionFault.NOT_A_FILE, detail)
    if found.st_size > most_bytes:
        raise ExtractionError(ExtractionFault.TOO_LARGE, f"{found.st_size} bytes")
    return found


@dataclass(frozen=True)
class Source:
    """A file to read, judged by its content; its name is only a hint between text formats."""

    path: Path
    name: str = ""  # by which the user knows it; "": that of the path
    report: Callable[[float], None] | None = None  # called with how much is read, 0 to 1

    def progress(self, done: int, whole: int) -> None:
        """Tell how much is read; a reader that tells it is given more time."""
        if self.report is not None and whole > 0:
            self.report(done / whole)

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB."""
        with self.path.open("rb") as file:
            return file.read(1 << 16)

    @property
    def suffix(self) -> str:
        """The ending of its name, in lower case, with the dot."""
        return Path(self.name or self.path.name).suffix.lower()

    def open(self) -> BinaryIO:
        """The file, to be closed by the caller."""
        return self.path.open("rb")
