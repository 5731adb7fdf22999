"""Words, ruled lines and fragments of a page, upright: x to the right, y downwards, in points."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(slots=True)
class Word:
    """Characters without a space between them, and the box around them."""

    x0: float
    y0: float
    x1: float
    y1: float
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line that is drawn on a page, horizontal or vertical."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def is_horizontal(self) -> bool:
        return self.x1 - self.x0 >= self.y1 - self.y0


@dataclass(slots=True)
class Fragment:
    """Words side by side on one line; or a table, which takes their place."""

    x0: float
    y0: float
    x1: float
    y1: float
    words: list[Word] = field(default_factory=list[Word])
    rows: list[list[str]] | None = None  # of a table

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2

    @property
    def text(self) -> str:
        """Its words in the order in which they are read."""
        return " ".join(in_order(self.words))


def fragments(words: Iterable[Word]) -> list[Fragment]:
    """The fragments of words that are given in the order of the file."""
    made: list[Fragment] = []
    last: Fragment | None = None
    for word in words:
        height = word.y1 - word.y0
        if last is not None:
            before = last.words[-1]
            gap = max(word.x0 - before.x1, before.x0 - word.x1)
            room = max(height, before.y1 - before.y0)
            apart = abs(word.y0 + word.y1 - before.y0 - before.y1) / 2
            if apart < 0.35 * room and -0.7 * room < gap < 0.7 * room:
                last.words.append(word)
                last.x0 = min(last.x0, word.x0)
                last.x1 = max(last.x1, word.x1)
                last.y0 = min(last.y0, word.y0)
                last.y1 = max(last.y1, word.y1)
                continue
        last = Fragment(word.x0, word.y0, word.x1, word.y1, [word])
        made.append(last)
    return made


@lru_cache(maxsize=4096)
def _direction(character: str) -> int:
    kind = unicodedata.bidirectional(character)
    return -1 if kind in ("R", "AL") else 1 if kind == "L" else 0


def direction(text: str) -> int:
    """1 for text that is read from the left, -1 from the right, 0 for neither."""
    if text.isascii():
        return 1 if any(map(str.isalpha, text)) else 0
    total = sum(map(_direction, text))
    return (total > 0) - (total < 0)


def in_order(words: Sequence[Word]) -> list[str]:
    """The words of one line as they are read: those from the right to the left, too."""
    placed = sorted(words, key=lambda word: word.x0)
    ways = [direction(word.text) for word in placed]
    if -1 not in ways:
        return [word.text for word in placed]
    base = 1 if sum(ways) > 0 else -1
    for i, way in enumerate(ways):  # a number goes with the words before it
        ways[i] = way or (ways[i - 1] if i else base)
    runs: list[list[str]] = []
    for i, word in enumerate(placed):
        if not i or ways[i] != ways[i - 1]:
            runs.append([])
        runs[-1].insert(0 if ways[i] < 0 else len(runs[-1]), word.text)
    return [text for run in runs[::base] for text in run]
