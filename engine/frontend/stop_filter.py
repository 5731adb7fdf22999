"""StopFilter: cuts the text of an answer at the first stop string."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from engine.errors import RequestError
from engine.frontend.answer_stream import Kind, Piece

_LONGEST = 4_096  # characters of a stop string


class StopFilter:
    """Cuts streamed pieces at the first stop string; buffers a possible beginning of one.

    A stop string may be anywhere in the answer: in its thoughts, in its text, or across a tag.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises RequestError for a stop string of more than 4,096 characters: all of it is held."""
        # In order and without those that begin with another one, which comes first. The only one
        # that a text can begin with is then the last one that is not behind the text.
        self._stops: list[str] = []
        for stop in sorted({stop for stop in stops if stop}):
            if not self._stops or not stop.startswith(self._stops[-1]):
                self._stops.append(stop)
        self._longest = max(map(len, self._stops), default=0)
        if self._longest > _LONGEST:
            raise RequestError(
                f"A stop string has {self._longest:,} characters.",
                f"Give stop strings of {_LONGEST:,} characters at most.",
            )
        self._buffer: list[Piece] = []
        self.is_active = bool(self._stops)
        self.found = ""  # the stop string that the text was cut at

    @property
    def stopped(self) -> bool:
        """Whether a stop string was reached."""
        return bool(self.found)

    @property
    def held(self) -> int:
        """Characters in the buffer: the beginning of a stop string, or one and what follows it."""
        return sum(len(text) for _, text in self._buffer)

    def push(self, pieces: Sequence[Piece]) -> Sequence[Piece]:
        """Append pieces; returns those buffered that cannot be part of a stop string."""
        self._buffer += pieces
        text = "".join([text for _, text in self._buffer])
        held = len(text)  # where the beginning of a stop string may be
        for start in range(len(text)):
            part = text[start : start + self._longest]
            at = bisect_right(self._stops, part)
            if at and part.startswith(self._stops[at - 1]):
                self.found = self._stops[at - 1]
                return self._release(start)
            if held == len(text) and at < len(self._stops) and self._stops[at].startswith(part):
                held = start
        return self._release(held)

    def flush(self) -> Sequence[Piece]:
        """The buffered pieces at the end of the stream; none after a stop string."""
        return () if self.stopped else self._buffer

    def _release(self, length: int) -> list[Piece]:
        """The first characters; a tag is not divided unless the answer ends in it, as text."""
        released: list[Piece] = []
        while self._buffer and length > 0:
            kind, text = self._buffer[0]
            is_divided = length < len(text)
            if is_divided and kind in (Kind.OPENS, Kind.ENDS):
                if not self.stopped:
                    break
                kind = Kind.TEXT
            released.append((kind, text[:length]))
            if is_divided:
                self._buffer[0] = kind, text[length:]
            else:
                del self._buffer[0]
            length -= len(text)
        return released
