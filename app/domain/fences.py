"""Fences of code in Markdown: where code begins and ends."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*\n?", re.MULTILINE)


def fences(text: str) -> tuple[tuple[int, str], ...]:
    """Where fenced code begins, with its first line, and where its last line does, with ""."""
    found: list[tuple[int, str]] = []
    opened = ""
    for line in _FENCE.finditer(text):
        mark = line[1]
        if not opened:
            opened = mark
            found.append((line.start(), line[0]))
        elif mark[0] == opened[0] and len(mark) >= len(opened) and line[0].strip() == mark:
            opened = ""
            found.append((line.start(), ""))
    return tuple(found)


def closed(text: str) -> str:
    """A text whose fenced code ends with it, so that what follows is no code."""
    found = fences(text)
    if not found or not found[-1][1]:
        return text
    mark = found[-1][1].split()[0]
    return f"{text.rstrip()}\n{mark[: len(mark) - len(mark.lstrip(mark[0]))]}"
