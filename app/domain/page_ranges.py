"""Ranges of pages as the user writes them, such as "1-3, 7", and the pages that they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

_DASHES = re.compile("[-\u2010-\u2015\u2212]")
_MOST_DASHES = 20  # in a range: labels may have some
_LONGEST_NUMBER = 9  # digits
_SEPARATORS = re.compile("[,;\u060c\u061b\uff0c\u3001\uff1b\n]+")


def read_ranges(text: str, labels: Sequence[str]) -> tuple[int, ...] | None:
    """The indexes of the pages that a text names by their labels, in order; None: one is unknown.

    A label or a range that begins and ends with one; where no page has such a label, a number
    counts the pages from 1. An empty text names no page. Numbers may be written in any digits.
    """
    by_label = {label.casefold(): at for at, label in reversed(list(enumerate(labels)))}
    found: set[int] = set()
    for piece in filter(None, map(str.strip, _SEPARATORS.split(text))):
        if (single := _place(piece, by_label, len(labels))) is not None:
            found.add(single)
            continue
        for dash in islice(_DASHES.finditer(piece), _MOST_DASHES):
            first = _place(piece[: dash.start()], by_label, len(labels), otherwise=0)
            last = _place(piece[dash.end() :], by_label, len(labels), otherwise=len(labels) - 1)
            if first is not None and last is not None and first <= last:
                found.update(range(first, last + 1))
                break
        else:
            return None
    return tuple(sorted(found))


def write_ranges(chosen: Iterable[int], labels: Sequence[str]) -> str:
    """The labels of some pages, with neighbours as ranges: the text that `read_ranges` reads.

    Indexes of pages that are not there are left out.
    """
    runs: list[list[int]] = []
    for at in sorted(at for at in chosen if 0 <= at < len(labels)):
        if runs and runs[-1][1] == at - 1:
            runs[-1][1] = at
        else:
            runs.append([at, at])
    pieces: list[str] = []
    for first, last in runs:
        between = "-" if last > first + 1 else ", "
        pieces.append(labels[first] if first == last else f"{labels[first]}{between}{labels[last]}")
    return ", ".join(pieces)


def _place(
    text: str, by_label: dict[str, int], count: int, otherwise: int | None = None
) -> int | None:
    """The index of the page with a label or, if there is none, with a number; None: no page."""
    if not (label := text.strip()):
        return otherwise
    at = by_label.get(label.casefold())
    if at is None and label.isdecimal() and len(label) <= _LONGEST_NUMBER:
        number = int(label)
        at = by_label.get(str(number), number - 1)
    return at if at is not None and 0 <= at < count else None
