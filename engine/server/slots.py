"""Slots: the places of a server's answers, as llama.cpp counts them, and the text that each had last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MOST_KEPT = 64  # slots whose last answer is known


@dataclass(frozen=True, slots=True)
class SlotText:
    """The text that an answer ended with."""

    answer: int  # id of the engine's request
    tokens: int
    model: Path


class Slots:
    """Which slots are taken; used on the server's event loop."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._texts: dict[int, SlotText] = {}

    @contextmanager
    def taken(self, asked: int) -> Iterator[int]:
        """The slot of an answer meanwhile: the one asked for, or the first free one for -1."""
        slot = asked if asked >= 0 else next(at for at in range(1 << 20) if at not in self._taken)
        self._taken.append(slot)
        try:
            yield slot
        finally:
            self._taken.remove(slot)

    def note(self, slot: int, text: SlotText) -> None:
        """An answer in a slot has ended."""
        self._texts.pop(slot, None)
        self._texts[slot] = text
        while len(self._texts) > _MOST_KEPT:
            del self._texts[next(iter(self._texts))]

    def drop(self, slot: int) -> None:
        """The text of a slot is given up."""
        self._texts.pop(slot, None)

    def text(self, slot: int) -> SlotText | None:
        """The text that a slot had last."""
        return self._texts.get(slot)
