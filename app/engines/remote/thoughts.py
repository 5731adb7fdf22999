"""Thoughts inside the text of servers that do not separate them: tags around them, in pieces."""

from __future__ import annotations

# Tags that models write; the first is by far the most common one.
_TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
}
_LONGEST = max(map(len, _TAGS))


class ThoughtSplitter:
    """Splits text into thoughts and answer; the same for any sizes of its pieces.

    Thoughts begin at the start of an answer or directly after other thoughts: a tag further behind
    is something that the model writes about.
    """

    def __init__(self, *, at_start: bool = True) -> None:
        """`at_start` is False where the text continues one: no thoughts begin there."""
        self._closing = ""  # tag that ends the open thoughts; "": none are open
        self._may_open = at_start
        self._held = ""  # text that may be a part of a tag
        self._trims = False  # a tag came last: empty lines after it are dropped

    def push(self, text: str) -> list[tuple[bool, str]]:
        """Add text; returns pieces of it, each with whether it is thought."""
        text = self._held + text
        self._held = ""
        pieces: list[tuple[bool, str]] = []
        while True:
            if self._trims:
                text = text.lstrip("\n")
            if not text:
                return pieces
            if self._closing:
                thought, tag, after = text.partition(self._closing)
                if not tag:
                    kept = _overlap(text, self._closing)
                    thought, self._held = text[: len(text) - kept], text[len(text) - kept :]
                if thought:
                    pieces.append((True, thought))
                    self._trims = False
                if not tag:
                    return pieces
                self._closing, self._trims, text = "", True, after
            elif self._may_open:
                start = text.lstrip()
                tag = next((tag for tag in _TAGS if start.startswith(tag)), "")
                if tag:
                    self._closing, self._trims, text = _TAGS[tag], True, start[len(tag) :]
                    continue
                if not start or (
                    len(start) < _LONGEST and any(tag.startswith(start) for tag in _TAGS)
                ):
                    self._held = text
                    return pieces
                self._may_open = False
            else:
                pieces.append((False, text))
                self._trims = False
                return pieces

    def finish(self) -> list[tuple[bool, str]]:
        """What was held back at the end of the text."""
        held = self._held
        self._held = ""
        return [(bool(self._closing), held)] if held.strip() or (self._closing and held) else []


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of a text may begin a tag."""
    return next(
        (n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0
    )
