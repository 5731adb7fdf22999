"""Repetition guard: tells when the end of an answer is one passage again and again.

Small models fall into such loops and never end them. A tail of at least `TAIL` tokens that is made
of at least `REPEATS` equal passages is one; passages that differ in a single token are not. Much of
what repeats is meant to: lines of a refrain, equal items of a list, zeros in a table or in code. Such
a tail must be longer, so that it is written out, yet an endless one ends too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

TAIL, REPEATS = 160, 4  # tokens; equal passages
LINES_TAIL = 1_024  # tokens, of whole lines as in a refrain or a list
LITERAL_TAIL = 4_096  # tokens, in a fenced code block or a table

_LONGEST_LINE = 100  # characters; a longer one that begins no item is of running text
_ITEM = re.compile(r"\s*(?:[-*+•>#]|\d+[.)])\s")  # how an item of a list begins, or a quoted line
_SHORTEST_SCALE = TAIL // REPEATS  # tokens
_FENCE = re.compile(rb"[\s>]*(?:[-*+]\s+|\d+[.)]\s+)?(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
_LINE_BYTES = 1_000  # of a line, that are searched for a fence


@dataclass(slots=True)
class _Run:
    """The last tokens, which repeat those a period before them."""

    start: int  # of the first passage
    tail: int = 0  # tokens until it is a loop; 0: not known yet


class RepetitionGuard:
    """Follows the tokens of one answer.

    A passage of p tokens is looked for at the scale m, m/2 < p <= m: after every m/2 tokens the last
    m are searched in the last 2 m. As m >= p, the nearest place where they occur is exactly one
    passage back (Fine and Wilf 1965), found before there are four; each token then only has to be
    compared with the one a passage before it. A token costs a constant time at each scale.
    """

    def __init__(self, piece: Callable[[int], bytes], begun: str = "") -> None:
        """`piece` returns the bytes of a token; `begun` is the text of the answer before it."""
        self._piece = piece
        self._tokens: list[int] = []
        self._runs: dict[int, _Run] = {}  # by period
        self._scanned = 0  # tokens that were searched for fences
        self._line = b""  # the last line of these
        self._fence = b""  # marker of the open code block; empty: there is none
        self._fenced_from = 0  # first token after that marker
        self._scan(begun.encode("utf-8", "replace"), 0)

    def push(self, token: int) -> bool:
        """Add a token; whether the answer is in a loop now."""
        self._tokens.append(token)
        count = len(self._tokens)
        for period, run in list(self._runs.items()):
            if token != self._tokens[-1 - period]:
                del self._runs[period]
            elif count - run.start >= max(run.tail or TAIL, REPEATS * period):
                run.tail = run.tail or self._loop_tail(period, run.start)
                if count - run.start >= run.tail:
                    return True
        scale = _SHORTEST_SCALE
        while count % (scale // 2) == 0 and count >= 2 * scale:
            self._search(scale)
            scale *= 2
        return False

    def _search(self, scale: int) -> None:
        """Find the last `scale` tokens in as many before them, and follow what repeats."""
        recent = "".join(map(chr, reversed(self._tokens[-2 * scale :])))
        period = recent.find(recent[:scale], 1)
        if period < 0 or period in self._runs:
            return
        start = len(self._tokens) - scale - period
        while start and self._tokens[start - 1] == self._tokens[start - 1 + period]:
            start -= 1
        self._runs[period] = _Run(start)

    def _loop_tail(self, period: int, start: int) -> int:
        """How many tokens of such passages are a loop; `start` is that of the first one."""
        while self._scanned < len(self._tokens):
            self._scanned += 1
            self._scan(self._piece(self._tokens[self._scanned - 1]), self._scanned)
        passage = b"".join(map(self._piece, self._tokens[-period:])).decode("utf-8", "replace")
        if not passage.strip():
            return TAIL
        if self._fence and self._fenced_from <= start + period:
            return LITERAL_TAIL
        # Without those at both ends, which are parts of lines.
        lines = [line for line in (3 * passage).split("\n")[1:-1] if line.strip()] or [passage]
        if all("|" in line for line in lines):
            return LITERAL_TAIL
        if "\n" not in passage:
            return TAIL
        is_short = [len(line) <= _LONGEST_LINE or _ITEM.match(line) is not None for line in lines]
        return LINES_TAIL if all(is_short) else TAIL

    def _scan(self, text: bytes, end: int) -> None:
        """Follow code blocks through a text, which ends before token `end`."""
        *lines, rest = (self._line + text).split(b"\n")
        for line in lines:
            found = _FENCE.fullmatch(line)
            if found is None:
                continue
            marker, info = found.groups()
            if not self._fence:
                self._fence, self._fenced_from = marker, end
            elif marker.startswith(self._fence) and not info.strip():
                self._fence = b""
        self._line = rest[:_LINE_BYTES]
