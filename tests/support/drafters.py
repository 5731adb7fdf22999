"""Drafters for tests: proposals that are partly right, verified whatever they cost."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.core.scheduler import Scheduler
from engine.speculative.costs import StepCosts
from engine.speculative.drafter import Draft

WRONG_EVERY = 4  # tokens of a draft, on average


class FreeDrafts(StepCosts):
    """Costs with which every draft pays."""

    def ratio(self, rows: int, base: int) -> float:
        return 1.0

    def seconds(self, rows: int) -> float:
        return 1e6  # against which no draft takes long

    def is_stale(self, rows: int) -> bool:
        return False


def verify_every_draft(scheduler: Scheduler) -> None:
    """Let every draft be verified as long as it is, even if few tokens are accepted."""
    scheduler._costs = FreeDrafts()


class PartlyRight:
    """Proposes what one of the expected texts has next, now and then with a wrong token in it."""

    costs_nothing = True
    priors = (0.95,)

    def __init__(self, texts: Sequence[Sequence[int]], vocabulary: int, seed: int = 0) -> None:
        self._texts = texts
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self._length = 0

    def draft(self, text: Sequence[int], most: int) -> Draft:
        assert len(text) >= self._length, "the text was cut without a word"
        self._length = len(text)
        known = [one for one in self._texts if list(one[: len(text)]) == list(text)]
        right = self._random.choice(known)[len(text) :] if known else []
        tokens = [*right, *(self._any() for _ in range(4))]  # and beyond the end of the answer
        for at in range(len(tokens)):
            if not self._random.randrange(WRONG_EVERY):
                tokens[at] = self._any()
        return Draft(tokens[: self._random.randint(0, most)])

    def rewind(self, length: int) -> None:
        self._length = length

    def close(self) -> None:
        pass

    def _any(self) -> int:
        return self._random.randrange(self._vocabulary)
