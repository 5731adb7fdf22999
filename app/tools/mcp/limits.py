"""Limits of what a server may send: the size and structure of a message, and how many at a time.

A message becomes objects of Python, which may need far more memory than its text: 10 MB of "[],"
would be 200 MB. Brackets and commas outside of quotes are therefore counted before it is parsed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

from app.system.translation import number, tr

MESSAGE_BYTES = 10_000_000
WIDE_BYTES = 4_000_000  # one letter that is not of ASCII makes a text up to four times as large
# Over HTTP: the SDK holds such a message five times while it reads it.
HTTP_BYTES, HTTP_WIDE_BYTES = 6_000_000, 2_500_000
_MOST_VALUES = 100_000  # some 10 MB as objects
_SMALL = 200_000  # bytes of a message that cannot hold too many values
_SHORTEST_PAUSE = 0.05  # seconds
_QUOTED = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_REST = re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)


class TooMuch(Exception):
    """A server sent more than is read: `str(error)` says what."""


class MessageMeter:
    """Measures one message as its pieces come."""

    def __init__(self, most_bytes: int = MESSAGE_BYTES, most_wide: int = WIDE_BYTES) -> None:
        """`most_wide` is for messages with other letters than those of ASCII."""
        self._limits = most_bytes, most_wide
        self.reset()

    def reset(self) -> None:
        """The next message begins."""
        self._size = self._values = 0
        self._is_quoted = self._is_escaped = self._is_wide = False

    def feed(self, piece: bytes) -> None:
        """Measure a piece; raises TooMuch."""
        self._size += len(piece)
        self._is_wide = self._is_wide or not piece.isascii() or b"\\u" in piece
        if self._size > (most := self._limits[self._is_wide]):
            raise TooMuch(tr("a message of more than {size} MB", size=number(most // 1_000_000)))
        self._values += self._counted(piece)
        if self._size > _SMALL and self._values > _MOST_VALUES:
            raise TooMuch(tr("a message of more than {count} values", count=number(_MOST_VALUES)))

    def _counted(self, piece: bytes) -> int:
        """Values that begin in a piece; what is in quotes is text."""
        if self._is_escaped:
            piece, self._is_escaped = piece[1:], False
        if self._is_quoted:
            end = _REST.match(piece)
            if end is None:
                self._is_escaped = (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1
                return 0
            piece, self._is_quoted = piece[end.end() :], False
        plain = _QUOTED.sub(b"", piece)
        if (begun := plain.find(b'"')) >= 0:
            rest, plain = plain[begun:], plain[:begun]
            self._is_quoted = True
            self._is_escaped = (len(rest) - len(rest.rstrip(b"\\"))) % 2 == 1
        return plain.count(b",") + plain.count(b"[") + plain.count(b"{")


class Pacer:
    """Slows the reading of a flood, so that it cannot use up a processor, and then ends it.

    A message costs 1, and 1 more for each 16 KB. `burst` may come at once, then `rate` a second.
    """

    def __init__(
        self,
        burst: float = 3_000.0,
        rate: float = 600.0,
        patience: float = 10.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`patience`: seconds, since it last caught up, until TooMuch is raised."""
        self._burst, self._rate, self._patience = burst, rate, patience
        self._now, self._sleep = now, sleep
        self._left, self._at = burst, now()
        self._dry: float | None = None  # since when more comes than is read

    async def spend(self, messages: float, size: int) -> None:
        """Wait until so much may be read; raises TooMuch."""
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= self._burst / 2:
            self._dry = None
        self._left -= messages + size / 16_384
        if self._left < 0:
            self._dry = now if self._dry is None else self._dry
            if now - self._dry > self._patience:
                raise TooMuch(tr("messages without end"))
        if self._left < -self._rate * _SHORTEST_PAUSE:
            await self._sleep(min(-self._left / self._rate, 1.0))
