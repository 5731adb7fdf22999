"""The file that a reader extracts a document from, its limits, and why it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

MOST_CHARACTERS = 40_000_000  # of a document's text; what is longer is cut, with a warning
MOST_BYTES = 2_000_000_000  # of a file


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
