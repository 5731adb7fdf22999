"""StopFilter: cuts the text of an answer at the first stop string."""

from __future__ import annotations

from collections.abc import Sequence

from engine.frontend.answer_stream import Kind, Piece


class StopFilter:
    """Cuts streamed pieces at the first stop string; buffers a possible beginning of one.

    A stop string may be anywhere in the answer: in its thoughts, in its text, or across a tag.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=1) - 1
        self._buffer: list[Piece] = []
        self.is_active = bool(self._stops)
        self.found = ""  # the stop string that the text was cut at

    @property
    def stopped(self) -> bool:
        """Whether a stop string was reached."""
        return bool(self.found)

    def push(self, pieces: Sequence[Piece]) -> Sequence[Piece]:
        """Append pieces; returns those buffered that cannot be part of a stop string."""
        self._buffer += pieces
        text = "".join([text for _, text in self._buffer])
        places = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if places:
            place, self.found = min(places)
            return self._release(place)
        return self._release(len(text) - self._partial_stop_length(text))

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

    def _partial_stop_length(self, text: str) -> int:
        """Length of the longest suffix of a text that is a prefix of a stop string."""
        for length in range(min(self._longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
