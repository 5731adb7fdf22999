"""Lookup decoding: drafts copied from an earlier place of the text that ends like the text now.

Source: Saxena 2023, Prompt Lookup Decoding; llama.cpp and vLLM call it n-gram speculation. It needs
no second model, and wins where an answer repeats its prompt: edits, quotes, code, tables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from engine.speculative.drafter import NO_DRAFT, Draft

_PAIR = 2  # tokens of the shortest match
_LONGEST = 32  # tokens of a match that are compared
_PLACES = 16  # earlier places with the same pair that are compared, the last ones
_CLASSES = (3, 4, 6, 10, 18)  # least lengths of a match of each class of evidence after the first


class LookupDrafter:
    """Finds the longest match of the end of a text earlier in it; of equal ones the last."""

    costs_nothing = True
    priors = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9)  # by length of the match, see `_CLASSES`

    def __init__(self) -> None:
        self._text: list[int] = []
        self._places: dict[tuple[int, int], list[int]] = {}  # of a pair: positions after it

    def draft(self, text: Sequence[int], most: int) -> Draft:
        """The tokens that followed the longest match; its length is the evidence."""
        self._append(text)
        if most < 1 or len(self._text) < _PAIR:
            return NO_DRAFT
        known, end = self._text, len(self._text)
        best, longest = 0, 0
        for place in reversed(self._places.get((known[-2], known[-1]), ())[-_PLACES - 1 :]):
            if place < end and (length := self._match(place)) > longest:
                best, longest = place, length
                if length == _LONGEST:
                    break
        if not longest:
            return NO_DRAFT
        found: list[int] = []
        for at in range(best, best + most):  # past its end the text goes on with the draft
            found.append(known[at] if at < end else found[at - end])
        return Draft(found, bisect_right(_CLASSES, longest))

    def rewind(self, length: int) -> None:
        """Forget the tokens from position `length` on."""
        for at in range(len(self._text), max(length, 1), -1):
            if at >= _PAIR:
                self._places[self._text[at - 2], self._text[at - 1]].pop()
        del self._text[length:]

    def close(self) -> None:
        """Nothing is held."""

    def _append(self, text: Sequence[int]) -> None:
        known = self._text
        for at in range(len(known), len(text)):
            known.append(text[at])
            if at:
                self._places.setdefault((known[-2], known[-1]), []).append(at + 1)

    def _match(self, place: int) -> int:
        """How many tokens before `place` equal those at the end of the text, the pair included."""
        known, end = self._text, len(self._text)
        most = min(_LONGEST, place)
        length = _PAIR
        while length < most and known[place - 1 - length] == known[end - 1 - length]:
            length += 1
        return length
