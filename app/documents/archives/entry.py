"""A file in an archive, and a cursor over the bytes of a header."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in an archive."""

    name: str
    size: int | None = None  # bytes, unpacked; None: not known
    modified: str = ""


class Cursor:
    """Reads a header from its beginning; raises EOFError at its end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes."""
        return len(self._content) - self.at

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if not 0 <= count <= self.left:
            raise EOFError("the header is cut")
        self.at += count
        return self._content[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self, count: int) -> int:
        """A number of so many bytes, the lowest first."""
        return int.from_bytes(self.take(count), "little")


def date_words(seconds: float) -> str:
    """A time in seconds since 1970 as the list shows it, in UTC; "" for one that is none."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return ""
    return f"{moment:%Y-%m-%d %H:%M}" if seconds > 0 else ""


def dos_date_words(value: int) -> str:
    """A time as MS-DOS packs it into 32 bits, without a time zone."""
    year, month, day = 1980 + (value >> 25), value >> 21 & 15, value >> 16 & 31
    hour, minute = value >> 11 & 31, value >> 5 & 63
    if not (year > 1980 and 1 <= month <= 12 and day):
        return ""
    return f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}"
