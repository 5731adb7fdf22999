"""Line splitter for streamed text: complete lines, and the partial last one."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\ud800-\udfff\u2028\u2029]")


def _replacement(match: re.Match[str]) -> str:
    return "\n" if match[0] in "\x0b\x0c\x85\u2028\u2029" else "\ufffd"


class Lines:
    """Lines of a text that grows at its end."""

    def __init__(self) -> None:
        self.complete: list[str] = []
        self.partial = ""
        self._carriage_return = False  # whether the text so far ends with one

    def add(self, text: str, *, last: bool = False) -> list[str]:
        """Append text and return the lines that it completes; `last` completes the partial one."""
        if self._carriage_return:
            text = "\r" + text
        self._carriage_return = text.endswith("\r") and not last
        if self._carriage_return:
            text = text[:-1]
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        *ended, rest = _CONTROL.sub(_replacement, text).split("\n")
        if ended:
            ended[0] = self.partial + ended[0]
            self.partial = ""
        self.partial += rest
        if last and self.partial:
            ended.append(self.partial)
            self.partial = ""
        self.complete += ended
        return ended

    def source(self, start: int, end: int) -> str:
        """The text of the lines [start, end); an `end` past the complete ones adds the partial."""
        lines = self.complete[start:end]
        if end > len(self.complete) and self.partial:
            lines.append(self.partial)
        return "\n".join(lines)
