"""Very long lines in text fields: folded while they are edited, whole again when they are read."""

from __future__ import annotations

_LINE_LIMIT = 4000  # characters; Qt needs a minute to lay out one line of a million
_FOLD = "\u2060\n"  # a line end that is not the text's own, told by the invisible mark before it


def folded(text: str) -> str:
    """The text with very long lines folded, at a space where there is one."""
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
    """The text as it was before `folded`."""
    return text.replace(_FOLD, "")
