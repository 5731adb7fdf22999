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
_MOST_VALUES = 100_000  # some 10 MB as objects
_SMALL = 200_000  # bytes of a message that cannot hold too many values
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_REST = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)


class TooMuch(Exception):
    """A server sent more than is read: `str(error)` says what."""


class MessageMeter:
    """Measures one message as its pieces come."""

    def __init__(self, most_bytes: int = MESSAGE_BYTES) -> None:
        self._most = most_bytes
        self.reset()

    def reset(self) -> None:
        """The next message begins."""
        self._size = self._values = 0
        self._is_quoted = self._is_escaped = False

    def feed(self, piece: bytes) -> None:
        """Measure a piece; raises TooMuch."""
        self._size += len(piece)
        if self._size > self._most:
            raise TooMuch(
                tr("a message of more than {size} MB", size=number(self._most // 1_000_000))
            )
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
        """`patience`: seconds of waiting, since it last caught up, until TooMuch is raised."""
        self._burst, self._rate, self._patience = burst, rate, patience
        self._now, self._sleep = now, sleep
        self._left, self._at, self._waited = burst, now(), 0.0

    async def spend(self, messages: float, size: int) -> None:
        """Wait until so much may be read; raises TooMuch."""
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= self._burst / 2:
            self._waited = 0.0
        self._left -= messages + size / 16_384
        if self._left < 0:
            pause = min(-self._left / self._rate, 1.0)
            self._waited += pause
            if self._waited > self._patience:
                raise TooMuch(tr("messages without end"))
            await self._sleep(pause)
