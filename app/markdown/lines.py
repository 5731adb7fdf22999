"""Line splitter for streamed text: complete lines, and the partial last one.

A line longer than `LONGEST` is split, to limit the size of a block; the split depends only on the
line's first characters, and `source` joins the parts again.
"""

from __future__ import annotations

import re

LONGEST = 2000  # characters of a line

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\ud800-\udfff\u2028\u2029]")


def _replacement(match: re.Match[str]) -> str:
    return "\n" if match[0] in "\x0b\x0c\x85\u2028\u2029" else "\ufffd"


class Lines:
    """Lines of a text that grows at its end."""

    def __init__(self) -> None:
        self.complete: list[str] = []
        self.joined: set[int] = set()  # complete lines that continue the one before
        self.partial = ""
        self._partial_joined = False
        self._carriage_return = False  # whether the text so far ends with one

    def add(self, text: str, *, last: bool = False) -> None:
        """Append text; `last` completes the partial line."""
        if self._carriage_return:
            text = "\r" + text
        self._carriage_return = text.endswith("\r") and not last
        if self._carriage_return:
            text = text[:-1]
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        *ended, rest = _CONTROL.sub(_replacement, text).split("\n")
        for line in ended:
            self._end_line(self.partial + line)
        self.partial += rest
        if len(self.partial) > LONGEST:
            self.partial = self._break(self.partial)
        if last and self.partial:
            self._end_line(self.partial)

    def _end_line(self, line: str) -> None:
        if len(line) > LONGEST:
            line = self._break(line)
        self._append(line)
        self.partial, self._partial_joined = "", False

    def _append(self, line: str) -> None:
        if self._partial_joined:
            self.joined.add(len(self.complete))
        self.complete.append(line)

    def _break(self, line: str) -> str:
        """Split a long line: completes all parts but the last, which is returned."""
        start = 0
        while len(line) - start > LONGEST:
            end = start + _break_at(line[start : start + LONGEST + 1])
            self._append(line[start:end])
            self._partial_joined = True
            start = end
        return line[start:]

    def source(self, start: int, end: int) -> str:
        """The text of the lines [start, end); an `end` past the complete ones adds the partial."""
        lines = self.complete[start:end]
        pieces = [
            ("" if n == start or n in self.joined else "\n") + line
            for n, line in enumerate(lines, start)
        ]
        if end > len(self.complete) and self.partial:
            pieces.append(("" if self._partial_joined or not pieces else "\n") + self.partial)
        return "".join(pieces)


def _break_at(text: str) -> int:
    """Where to split a long line: between a space and a letter, which cannot be markup."""
    for at in range(LONGEST, LONGEST // 2, -1):
        if text[at - 1] == " " and text[at].isalpha():
            return at
    return LONGEST
