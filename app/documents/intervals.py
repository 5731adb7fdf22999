"""Things on a page or a slide that overlap in one direction, as groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def clusters(items: Iterable[T], starts: Iterable[float], ends: Iterable[float]) -> list[list[T]]:
    """Groups of items whose intervals touch, from the smallest start on."""
    made: list[list[T]] = []
    reach = float("-inf")
    for start, end, item in sorted(zip(starts, ends, items, strict=True), key=lambda each: each[0]):
        if start >= reach:
            made.append([])
        made[-1].append(item)
        reach = max(reach, end)
    return made
