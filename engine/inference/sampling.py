"""Logits to the next token: penalties, then a list of filters, then one draw.

The order is the field's: penalties, top-k, typical, top-p, min-p, temperature. Each filter takes
and returns candidates, so each can be tested on four numbers. Sorting a vocabulary of 150,000 takes
longer than a small model takes for a token, so the filters are handed no more of it than the first
of them could keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ModelFileError, RequestError
from engine.messages import Sampling

# Below this the best token is certain to far more digits than a float has, and dividing overflows.
_COLDEST = 1e-6

_ROWS = 64  # of a vocabulary folded up, whose columns' largest logits bound the k-th largest
_REACHES = (2, 4, 6, 8, 10, 12, 16)  # below the best logit, where a nucleus is looked for in turn
_SLACK = 1e-4  # room for rounding where the exact filter follows
_MANY = 4096  # candidates from which on a draw by one random number is the faster one

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens still in the draw, most likely first; in any order where no filter follows."""

    ids: Tensor  # [N] i64
    logits: Tensor  # [N] f32, descending
    total: float | None = None  # log of the sum of all exponentials, where some are left out

    @property
    def probabilities(self) -> Tensor:
        """[N] f32 summing to 1, together with those left out."""
        if self.total is None:
            return torch.softmax(self.logits, dim=0)
        return torch.exp(self.logits - self.total)

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
    """Those whose surprise is nearest to the mean surprise, until they sum to p; taken in any order.

    Source: Meister et al. 2022, Locally Typical Sampling, section 3.
    """
    probabilities = candidates.probabilities
    surprise = -probabilities.log()
    entropy = (probabilities * surprise).nansum()
    order = _nucleus(-(surprise - entropy).abs().numpy(), probabilities.numpy(), p)
    total = probabilities.numpy()[order].cumsum()
    kept = order[: min(int((total <= p).sum()) + 1, len(order))]
    return candidates.keep(torch.from_numpy(_sorted(candidates.logits.numpy(), kept)))


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
    ids, counts = np.unique(np.array(recent, dtype=np.int64), return_counts=True)
    changed = logits.clone()
    row = changed.numpy()
    old, repeat = row[ids], np.float32(sampling.repeat_penalty)
    new = np.where(old > 0, old / repeat, old * repeat)
    new -= counts.astype(np.float32) * np.float32(sampling.frequency_penalty)
    row[ids] = new - np.float32(sampling.presence_penalty)
    return changed


def filtered(logits: Tensor, sampling: Sampling) -> Candidates:
    """What the filters leave of logits [V], temperature applied."""
    candidates = _candidates(logits.numpy(), sampling)
    for narrow in _filters(sampling):
        candidates = narrow(candidates)
    return candidates


class Sampler:
    """Draws tokens; one per answer, so its random numbers advance from token to token."""

    def __init__(self, sampling: Sampling) -> None:
        check(sampling)
        self.sampling = sampling
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
        row = logits.numpy()
        best = int(row.argmax())  # the lowest id of a tie; what is not a number counts as largest
        if not math.isfinite(row[best]):
            raise ModelFileError(
                "The model computed values that are not numbers.",
                "Its file is probably damaged; download it again.",
            )
        if sampling.temperature < _COLDEST:
            return best
        candidates = filtered(logits, sampling)
        return int(candidates.ids[self._pick(candidates.probabilities)])

    def _pick(self, probabilities: Tensor) -> int:
        """An index of [N], each as likely as it says."""
        if len(probabilities) < _MANY:
            return int(torch.multinomial(probabilities, 1, generator=self._random))
        below = probabilities.numpy().cumsum(dtype=np.float64)
        at = float(torch.rand(1, dtype=torch.float64, generator=self._random)) * below[-1]
        return min(int(below.searchsorted(at, side="right")), len(below) - 1)


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


def _candidates(row: Floats, sampling: Sampling) -> Candidates:
    """All that the filters may keep of logits [V]."""
    if sampling.top_k:
        return _taken(row, _largest(row, sampling.top_k))
    if sampling.typical_p < 1:
        return _all(row)
    if sampling.min_p > 0:
        # Both filters keep a beginning, so what min-p drops cannot come back.
        least = row.max() + np.float32(math.log(sampling.min_p) - _SLACK)
        return _taken(row, _sorted(row, np.flatnonzero(row >= least)), _total(row))
    if sampling.top_p < 1:
        total = _total(row)
        return _taken(row, _nucleus(row, np.exp(row - np.float32(total)), sampling.top_p), total)
    return _all(row)


def _all(row: Floats) -> Candidates:
    return Candidates(torch.arange(len(row)), torch.from_numpy(row))


def _taken(row: Floats, ids: Ints, total: float | None = None) -> Candidates:
    return Candidates(torch.from_numpy(ids), torch.from_numpy(row[ids]), total)


def _total(row: Floats) -> float:
    """The logarithm of the sum of all exponentials."""
    best = row.max()
    return float(best) + math.log(float(np.exp(row - best).sum()))


def _nucleus(keys: Floats, weights: Floats, p: float) -> Ints:
    """Indices by descending key, lower ones first in a tie: enough for their weights to reach `p`."""
    best = keys.max()
    for reach in _REACHES:
        ids = np.flatnonzero(keys >= best - np.float32(reach))
        if weights[ids].sum(dtype=np.float64) > p + _SLACK:
            return _sorted(keys, ids)
    return _sorted(keys, np.arange(len(keys)))


def _largest(keys: Floats, count: int) -> Ints:
    """Indices of the `count` largest of [V] by descending key, the lower index first in a tie."""
    columns = len(keys) // _ROWS
    if count >= columns:
        return _sorted(keys, np.arange(len(keys)))[:count]
    # So many columns hold a key as large as this, so there are at least `count` of those.
    tops = keys[: columns * _ROWS].reshape(_ROWS, columns).max(0)
    least = np.partition(tops, columns - count)[columns - count]
    return _sorted(keys, np.flatnonzero(keys >= least))[:count]


def _sorted(keys: Floats, ids: Ints) -> Ints:
    """`ids` by descending key, lower ones first in a tie."""
    bits = keys[ids].view(np.int32)
    descending = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))  # floats in the order of integers
    packed = (descending.astype(np.int64) << 32) | ids
    packed.sort()
    return packed & 0xFFFFFFFF
