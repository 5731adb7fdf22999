"""What a server of tools printed and reported: its last lines, made safe for a window."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable

MOST_LINES = 500
_MOST_LETTERS = 1_000  # of a line
_PER_SECOND = 200  # lines that are kept; of a flood, the rest is counted
# Sequences that colour a terminal, move its cursor or set its title.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Letters that no font shows, and that can carry a hidden text.
_HIDDEN = re.compile(r"[\U000e0000-\U000e0fff]")


def visible(text: str, most: int, *, lines: bool = False) -> str:
    """A text of a server without control characters and hidden letters, cut to `most` letters.

    With `lines`, ends of lines and tabs stay.
    """
    text = _HIDDEN.sub("", _ANSI.sub("", text[: 4 * most]))
    kept = "\n\t" if lines else "\t"
    text = "".join(each for each in text if each in kept or each.isprintable())
    return text if len(text) <= most else f"{text[: most - 1]}…"


class ServerLog:
    """The last lines of one server; any thread may call."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._guard = threading.Lock()
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._second, self._count, self._dropped = 0, 0, 0

    def add(self, text: str) -> None:
        """Add a text, line by line; a flood is cut."""
        with self._guard:
            second = int(self._now())
            if second != self._second:
                self._second, self._count = second, 0
                if self._dropped:
                    self._lines.append(f"({self._dropped} lines were left out)")
                    self._dropped = 0
            for line in text.splitlines():
                if self._count >= _PER_SECOND:
                    self._dropped += 1
                elif shown := visible(line, _MOST_LETTERS).rstrip():
                    self._count += 1
                    self._lines.append(shown)

    def lines(self) -> tuple[str, ...]:
        """The lines, the oldest first."""
        with self._guard:
            left = (f"({self._dropped} lines were left out)",) if self._dropped else ()
            return (*self._lines, *left)
