"""Cuts of a long document: where its parts begin and end, and what a part lacks of its table."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

from app.domain.documents import PageStart
from app.domain.fences import fences
from app.domain.page_ranges import write_ranges
from app.domain.parts import FilePart, SectionPart

_BORDERS = ("\n\n", "\n", ". ", "\u3002", " ")  # the best first
_HEAD = re.compile(r"\|[ :|-]*-[ :|-]*\n")  # the second line of a table
_fences = lru_cache(1)(fences)  # of the document that is read


def part_length(length: int, tokens: int, most: int) -> int:
    """About how many characters the parts of a text have that has so many characters and tokens,
    if a part has at most so many tokens.
    """
    per_token = max(length / max(tokens, 1), 0.1)
    return math.ceil(tokens / max(math.ceil(tokens / most), 1) * per_token * 1.1) + 1


@lru_cache(8)
def about_parts(file: FilePart, tokens: int, most: int) -> int:
    """About how many parts a file of so many tokens has."""
    length, count, at = part_length(len(file.text), tokens, most), 0, 0
    while at < len(file.text):
        at = part_end(file, at, length)
        count += 1
    return count


def part_end(file: FilePart, start: int, most: int) -> int:
    """Where a part of at most so many characters ends: at a page, a paragraph, a line, or a word."""
    text, last, least = file.text, start + most, start + max(most // 2, 1)
    if last >= len(text):
        return len(text)
    at = bisect_right(file.pages, last, key=_start) - 1
    if at >= 0 and file.pages[at].start >= least:
        return file.pages[at].start
    for border in _BORDERS:
        at = text.rfind(border, least, last)
        if at >= 0:
            return at + len(border)
    return last


def _start(page: PageStart) -> int:
    return page.start


def part_of(
    file: FilePart, at: int, start: int, end: int, spans: Sequence[tuple[str, int, int]]
) -> SectionPart:
    """A part of a file whose pages are `spans`."""
    first = max(bisect_right(spans, start, key=itemgetter(1)) - 1, 0)
    pages = itertools.takewhile(lambda n: spans[n][1] < end, range(first, len(spans)))
    inside = [n for n in pages if spans[n][2] > start]
    labels = [page.label for page in file.pages]
    return SectionPart(
        "",
        file.name,
        file.unit.value,
        write_ranges(inside, labels) if inside else "",
        len(inside),
        file=at,
        start=start,
        end=end,
    )


def part_text(file: FilePart, start: int, end: int) -> str:
    """The text of a part; one that begins within a table has its head, and within code its fence."""
    return _opening(file.text, start) + file.text[start:end]


def _opening(text: str, start: int) -> str:
    if not start or text[start - 1] != "\n":
        return ""
    if text[start : start + 1] == "|":
        first = start
        while first and (before := text.rfind("\n", 0, first - 1) + 1) < first:
            if text[before] != "|":
                break
            first = before
        second = text.find("\n", first) + 1
        head = _HEAD.match(text, second)
        if first < start and head and head.end() <= start:
            return text[first : head.end()]
    fences = _fences(text) if "```" in text or "~~~" in text else ()
    at = bisect_right(fences, start, key=itemgetter(0)) - 1
    return fences[at][1] if at >= 0 and fences[at][0] < start else ""
