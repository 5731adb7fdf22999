"""StopFilter: cuts the text of an answer at the first stop string."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Cuts streamed text at the first stop string; buffers a possible beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._buffer = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Append `text`; returns the buffered text that cannot be part of a stop string."""
        self._buffer += text
        found = [at for stop in self._stops if (at := self._buffer.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._buffer) - self._partial_stop_length())

    def flush(self) -> str:
        """The buffered text at the end of the stream; empty after a stop string."""
        return "" if self.stopped else self._release(len(self._buffer))

    def _release(self, length: int) -> str:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        return text

    def _partial_stop_length(self) -> int:
        """Length of the longest suffix of the buffer that is a prefix of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._buffer)), 0, -1):
            end = self._buffer[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
