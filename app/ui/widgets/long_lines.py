"""Folds very long lines in text fields, which Qt lays out too slowly."""

from __future__ import annotations

_LINE_LIMIT = 4000  # characters; Qt takes a minute to lay out one line of a million
_FOLD = "\u2060\n"  # an inserted line break, marked by a WORD JOINER in front of it


def folded(text: str) -> str:
    """The text with very long lines folded, at a space if there is one."""
    if len(text) <= _LINE_LIMIT:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        pieces: list[str] = []
        start = 0
        while len(line) - start > _LINE_LIMIT:
            space = line.rfind(" ", start, start + _LINE_LIMIT)
            end = space + 1 if space > start else start + _LINE_LIMIT
            pieces.append(line[start:end])
            start = end
        lines.append(_FOLD.join([*pieces, line[start:]]))
    return "\n".join(lines)


def unfolded(text: str) -> str:
    """The inverse of `folded`: removes the inserted line breaks."""
    return text.replace(_FOLD, "")
