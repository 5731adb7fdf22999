"""Logits to the next token: penalties, then a list of filters, then one draw.

The order is the field's: penalties, top-k, typical, top-p, min-p, temperature. Each filter takes
and returns candidates, so each can be tested on four numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import ModelFileError, RequestError
from engine.messages import Sampling

# Below this the best token is certain to far more digits than a float has, and dividing overflows.
_COLDEST = 1e-6


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens still in the draw, most likely first."""

    ids: Tensor  # [N] i64
    logits: Tensor  # [N] f32, descending

    @property
    def probabilities(self) -> Tensor:
        """[N] f32 summing to 1."""
        return torch.softmax(self.logits, dim=0)

    def keep(self, which: Tensor | slice) -> Candidates:
        """The candidates picked by a mask, an index or a slice."""
        return Candidates(self.ids[which], self.logits[which])


Filter = Callable[[Candidates], Candidates]


def top_k(candidates: Candidates, k: int) -> Candidates:
    """The k most likely; k 0 keeps all."""
    return candidates.keep(slice(k)) if k else candidates


def top_p(candidates: Candidates, p: float) -> Candidates:
    """The fewest whose probability sums to at least p (nucleus sampling)."""
    total = candidates.probabilities.cumsum(0)
    return candidates.keep(slice(int((total < p).sum()) + 1))


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Those at least p times as likely as the first."""
    likely = candidates.probabilities >= p * candidates.probabilities[0]
    return candidates.keep(slice(max(int(likely.sum()), 1)))


def typical(candidates: Candidates, p: float) -> Candidates:
    """Those whose surprise is nearest to the mean surprise, until they sum to p.

    Source: Meister et al. 2022, Locally Typical Sampling, section 3.
    """
    probabilities = candidates.probabilities
    surprise = -probabilities.log()
    entropy = (probabilities * surprise).nansum()
    order = (surprise - entropy).abs().argsort(stable=True)
    total = probabilities[order].cumsum(0)
    kept = order[: min(int((total <= p).sum()) + 1, len(order))]
    return candidates.keep(kept.sort().values)


def temperature(candidates: Candidates, value: float) -> Candidates:
    """Logits divided by the temperature: below 1 sharper, above 1 flatter."""
    return Candidates(candidates.ids, candidates.logits / value)


def penalize(logits: Tensor, recent: Sequence[int], sampling: Sampling) -> Tensor:
    """Make tokens of `recent` less likely; logits [V] are returned changed, not written to.

    repeat divides a positive logit and multiplies a negative one; frequency is subtracted once per
    occurrence, presence once.
    """
    if not recent:
        return logits
    counts = Counter(recent)
    ids = torch.tensor(list(counts))
    count = torch.tensor(list(counts.values()), dtype=logits.dtype)
    old = logits[ids]
    repeat = sampling.repeat_penalty
    new = torch.where(old > 0, old / repeat, old * repeat)
    new = new - count * sampling.frequency_penalty - sampling.presence_penalty
    return logits.index_copy(0, ids, new)


class Sampler:
    """Draws tokens; one per answer, so its random numbers advance from token to token."""

    def __init__(self, sampling: Sampling) -> None:
        check(sampling)
        self.sampling = sampling
        self._filters = _filters(sampling)
        self._random = torch.Generator()
        if sampling.seed >= 0:
            self._random.manual_seed(sampling.seed)
        else:
            self._random.seed()

    @property
    def state(self) -> Tensor:
        """Where the random numbers stand: u8, for `resume`."""
        return self._random.get_state()

    def resume(self, state: Tensor) -> None:
        """Go on with the random numbers from a `state`; raises ValueError for what is none."""
        try:
            self._random.set_state(state)
        except RuntimeError as error:
            raise ValueError("not the state of a random number generator") from error

    def draw(self, logits: Tensor, tokens: Sequence[int]) -> int:
        """One token from logits [V]; `tokens` is everything before it, prompt included."""
        sampling = self.sampling
        if _penalizes(sampling) and sampling.penalty_window:
            logits = penalize(logits, tokens[-sampling.penalty_window :], sampling)
        best = int(logits.argmax())
        if not torch.isfinite(logits[best]):
            raise ModelFileError(
                "The model computed values that are not numbers.",
                "Its file is probably damaged; download it again.",
            )
        if sampling.temperature < _COLDEST:
            return best  # argmax takes the lowest id of a tie
        candidates = _sorted(logits, sampling.top_k)
        for narrow in self._filters:
            candidates = narrow(candidates)
        drawn = torch.multinomial(candidates.probabilities, 1, generator=self._random)
        return int(candidates.ids[drawn])


def check(sampling: Sampling) -> None:
    """Raise RequestError naming the first option out of its range."""
    limits: tuple[tuple[str, float, float, float], ...] = (
        ("temperature", sampling.temperature, 0, 100),
        ("top-k", sampling.top_k, 0, 1 << 31),
        ("top-p", sampling.top_p, 0, 1),
        ("min-p", sampling.min_p, 0, 1),
        ("typical", sampling.typical_p, 0, 1),
        ("repeat penalty", sampling.repeat_penalty, 0.01, 100),
        ("frequency penalty", sampling.frequency_penalty, -100, 100),
        ("presence penalty", sampling.presence_penalty, -100, 100),
        ("penalty window", sampling.penalty_window, 0, 1 << 31),
        ("seed", sampling.seed, -1, (1 << 63) - 1),
    )
    for name, value, low, high in limits:
        if not low <= value <= high:  # also refuses a value that is not a number
            raise RequestError(
                f"The {name} is {value}; it must lie between {low:,} and {high:,}.",
                "Change it in the settings or on the command line.",
            )


def _filters(sampling: Sampling) -> list[Filter]:
    """The filters that do anything, in order."""
    filters: list[Filter] = []
    if sampling.top_k:
        filters.append(lambda c: top_k(c, sampling.top_k))
    if sampling.typical_p < 1:
        filters.append(lambda c: typical(c, sampling.typical_p))
    if sampling.top_p < 1:
        filters.append(lambda c: top_p(c, sampling.top_p))
    if sampling.min_p > 0:
        filters.append(lambda c: min_p(c, sampling.min_p))
    if sampling.temperature != 1:
        filters.append(lambda c: temperature(c, sampling.temperature))
    return filters


def _penalizes(sampling: Sampling) -> bool:
    return (
        sampling.repeat_penalty != 1
        or sampling.frequency_penalty != 0
        or sampling.presence_penalty != 0
    )


def _sorted(logits: Tensor, k: int) -> Candidates:
    """Candidates in descending order; only the first k are sorted when k is given."""
    values, ids = logits.topk(min(k or len(logits), len(logits)))
    return Candidates(ids, values)
