"""Sampler: logits to the next token, by penalties, a chain of filters and one random draw.

The usual order: penalties, top-k, typical, top-p, min-p, temperature. Each filter takes and
returns candidates, so each can be tested on four numbers. Sorting a vocabulary of 150,000 takes
longer than a small model's decode step, so the chain starts from only those tokens that the first
filter could keep.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ModelFileError, RequestError
from engine.messages import Sampling

# Below this temperature sampling is greedy: the division overflows, and the best token's
# probability is 1 in float32.
_GREEDY_BELOW = 1e-6

_FOLD_ROWS = 64  # the vocabulary as [64, columns]: column maxima bound the k-th largest logit
_NUCLEUS_MARGINS = (2, 4, 6, 8, 10, 12, 16)  # below the best logit, tried in turn for the nucleus
_ROUNDING_MARGIN = 1e-4  # for a preselection before the exact filter
_CUMSUM_FROM = 4096  # candidates from which on inverting the cumulative sum beats multinomial

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that may be drawn, most likely first; in any order if no filter follows."""

    ids: Tensor  # [N] i64
    logits: Tensor  # [N] f32, descending
    logsumexp: float | None = None  # over all logits, if some are left out here

    @property
    def probabilities(self) -> Tensor:
        """[N] f32, which sum to 1 together with the tokens left out."""
        if self.logsumexp is None:
            return torch.softmax(self.logits, dim=0)
        return torch.exp(self.logits - self.logsumexp)

    def keep(self, which: Tensor | slice) -> Candidates:
        """The candidates selected by a mask, an index or a slice."""
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
    """Locally typical sampling: those with surprisal nearest to the entropy, until they sum to p.

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
    """Repetition penalties: a copy of logits [V] with the tokens of `recent` made less likely.

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
    """The candidates of logits [V] after all filters, temperature applied."""
    candidates = _candidates(logits.numpy(), sampling)
    for narrow in _filters(sampling):
        candidates = narrow(candidates)
    return candidates


class Sampler:
    """Draws tokens for one answer; its random number generator advances with each.

    `seed` gives the same tokens again; -1 after resuming an answer whose seed was random.
    """

    def __init__(self, sampling: Sampling) -> None:
        check(sampling)
        self.sampling = sampling
        self._random = torch.Generator()
        self.seed = sampling.seed if sampling.seed >= 0 else secrets.randbits(32)
        self._random.manual_seed(self.seed)

    @property
    def state(self) -> Tensor:
        """State of the random number generator, u8, for `resume`."""
        return self._random.get_state()

    def resume(self, state: Tensor) -> None:
        """Restore the random number generator's `state`; raises ValueError for an invalid one."""
        try:
            self._random.set_state(state)
        except RuntimeError as error:
            raise ValueError("not the state of a random number generator") from error
        self.seed = self.sampling.seed

    def draw(self, logits: Tensor, tokens: Sequence[int]) -> int:
        """One token from logits [V]; `tokens` are all tokens before it, prompt included."""
        sampling = self.sampling
        if _penalizes(sampling) and sampling.penalty_window:
            logits = penalize(logits, tokens[-sampling.penalty_window :], sampling)
        row = logits.numpy()
        best = int(row.argmax())  # the lowest id of a tie; argmax takes NaN for the largest
        if not math.isfinite(row[best]):
            raise ModelFileError(
                "The model computed values that are not numbers.",
                "Its file is probably damaged; download it again.",
            )
        if sampling.temperature < _GREEDY_BELOW:
            return best
        candidates = filtered(logits, sampling)
        return int(candidates.ids[self._pick(candidates.probabilities)])

    def _pick(self, probabilities: Tensor) -> int:
        """A random index with the given probabilities [N]."""
        if len(probabilities) < _CUMSUM_FROM:
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
        if not low <= value <= high:  # also true for NaN
            raise RequestError(
                f"The {name} is {value}; it must lie between {low:,} and {high:,}.",
                "Change it in the settings or on the command line.",
            )


def _filters(sampling: Sampling) -> list[Filter]:
    """The filters that are switched on, in order."""
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
    """The candidates of logits [V] that the filters may keep."""
    if sampling.top_k:
        return _selected(row, _top_indices(row, sampling.top_k))
    if sampling.typical_p < 1:
        return _all(row)
    if sampling.min_p > 0:
        # top-p and min-p both keep a prefix of the sorted tokens, so min-p may be applied first.
        least = row.max() + np.float32(math.log(sampling.min_p) - _ROUNDING_MARGIN)
        return _selected(row, _sorted(row, np.flatnonzero(row >= least)), _logsumexp(row))
    if sampling.top_p < 1:
        total = _logsumexp(row)
        nucleus = _nucleus(row, np.exp(row - np.float32(total)), sampling.top_p)
        return _selected(row, nucleus, total)
    return _all(row)


def _all(row: Floats) -> Candidates:
    return Candidates(torch.arange(len(row)), torch.from_numpy(row))


def _selected(row: Floats, ids: Ints, logsumexp: float | None = None) -> Candidates:
    return Candidates(torch.from_numpy(ids), torch.from_numpy(row[ids]), logsumexp)


def _logsumexp(row: Floats) -> float:
    best = row.max()
    return float(best) + math.log(float(np.exp(row - best).sum()))


def _nucleus(keys: Floats, weights: Floats, p: float) -> Ints:
    """The indices of the largest keys whose weights sum to at least `p`, in descending order."""
    best = keys.max()
    for margin in _NUCLEUS_MARGINS:
        ids = np.flatnonzero(keys >= best - np.float32(margin))
        if weights[ids].sum(dtype=np.float64) > p + _ROUNDING_MARGIN:
            return _sorted(keys, ids)
    return _sorted(keys, np.arange(len(keys)))


def _top_indices(keys: Floats, count: int) -> Ints:
    """Indices of the `count` largest of [V] by descending key, the lower index first in a tie."""
    columns = len(keys) // _FOLD_ROWS
    if count >= columns:
        return _sorted(keys, np.arange(len(keys)))[:count]
    # `count` columns have a maximum of at least this, so at least `count` keys are as large.
    tops = keys[: columns * _FOLD_ROWS].reshape(_FOLD_ROWS, columns).max(0)
    least = np.partition(tops, columns - count)[columns - count]
    return _sorted(keys, np.flatnonzero(keys >= least))[:count]


def _sorted(keys: Floats, ids: Ints) -> Ints:
    """`ids` by descending key, lower ids first in a tie."""
    bits = keys[ids].view(np.int32)
    descending = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))  # order-preserving map of floats to integers
    packed = (descending.astype(np.int64) << 32) | ids
    packed.sort()
    return packed & 0xFFFFFFFF
