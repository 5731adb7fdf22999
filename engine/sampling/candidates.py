"""Candidates: the tokens that may be drawn, and those of a large vocabulary that filters can keep.

Sorting a vocabulary of 150,000 takes longer than a small model's decode step, so filters start from
only those tokens that the first of them could keep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.messages import Sampling

_FOLD_ROWS = 64  # the vocabulary as [64, columns]: column maxima bound the k-th largest logit
_NUCLEUS_MARGINS = (2, 4, 6, 8, 10, 12, 16)  # below the best logit, tried in turn for the nucleus
_ROUNDING_MARGIN = 1e-4  # for a preselection before the exact filter
_SMALLEST = np.finfo(np.float32).min

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that may be drawn, with finite logits."""

    ids: Ints  # [N]
    logits: Floats  # [N]
    ordered: bool = True  # the most likely first, the lower id first in a tie; False: by id
    logsumexp: float | None = None  # over all logits, if some are left out here

    @property
    def weights(self) -> Doubles:
        """[N], proportional to the probabilities, the largest 1."""
        best = self.logits[0] if self.ordered else self.logits.max()
        return np.exp(self.logits - best, dtype=np.float64)

    @property
    def probabilities(self) -> Doubles:
        """[N], which sum to 1 together with the tokens left out."""
        if self.logsumexp is not None:
            return np.exp(self.logits - self.logsumexp, dtype=np.float64)
        best = self.logits[0] if self.ordered else self.logits.max()
        weights = np.exp(self.logits - best, dtype=np.float64)
        return weights / weights.sum()

    def probability(self, token: int) -> float:
        """The probability of a token; 0 if it is not among these."""
        found = np.flatnonzero(self.ids == token)
        return float(self.probabilities[found[0]]) if len(found) else 0.0

    def keep(self, which: NDArray[np.bool_] | Ints | slice) -> Candidates:
        """The candidates selected by a mask, indices or a slice."""
        return Candidates(self.ids[which], self.logits[which], self.ordered)

    def first(self, times: Doubles) -> int:
        """The token whose waiting time [N], divided by its probability, is the shortest."""
        weights = self.weights
        with np.errstate(divide="ignore"):  # a weight may underflow to 0
            np.divide(times, weights, out=weights)
        return int(self.ids[weights.argmin()])


def shortlist(row: Floats, sampling: Sampling) -> Candidates:
    """The candidates of logits [V] that the filters may keep; -inf: not allowed."""
    if sampling.top_k:
        ids = top_indices(row, sampling.top_k)
        return Candidates(ids, row[ids])
    if sampling.typical_p < 1:
        return everything(row)
    if sampling.min_p > 0:
        # top-p and min-p both keep a prefix of the sorted tokens, so min-p may be applied first.
        least = row.max() + np.float32(math.log(sampling.min_p) - _ROUNDING_MARGIN)
        return selected(row, in_order(row, np.flatnonzero(row >= least)), logsumexp(row))
    if sampling.top_p < 1:
        total = logsumexp(row)
        nucleus = nucleus_of(row, np.exp(row - np.float32(total)), sampling.top_p)
        return selected(row, nucleus, total)
    return everything(row)


def everything(row: Floats) -> Candidates:
    """All tokens of logits [V] that are allowed."""
    if row.min() > -np.inf:
        return Candidates(np.arange(len(row)), row, ordered=False)
    ids = np.flatnonzero(row > -np.inf)
    return Candidates(ids, row[ids], ordered=False)


def selected(row: Floats, ids: Ints, total: float | None = None) -> Candidates:
    """These ids, which are in order and allowed; `total` is the logsumexp over all."""
    return Candidates(ids, row[ids], logsumexp=total)


def logsumexp(row: Floats) -> float:
    """The logarithm of the sum of exp over [V]."""
    best = row.max()
    return float(best) + math.log(float(np.exp(row - best).sum()))


def nucleus_of(keys: Floats, weights: Floats, p: float) -> Ints:
    """The indices of the largest keys whose weights sum to at least `p`, in descending order."""
    best = keys.max()
    for margin in _NUCLEUS_MARGINS:
        ids = np.flatnonzero(keys >= best - np.float32(margin))
        if weights[ids].sum(dtype=np.float64) > p + _ROUNDING_MARGIN:
            return in_order(keys, ids)
    return in_order(keys, np.flatnonzero(keys >= _SMALLEST))


def top_indices(keys: Floats, count: int) -> Ints:
    """Indices of the `count` largest finite ones of [V], descending, the lower first in a tie."""
    columns = len(keys) // _FOLD_ROWS
    least = _SMALLEST
    if count < columns:
        # `count` columns have a maximum of at least this, so at least `count` keys are as large.
        tops = keys[: columns * _FOLD_ROWS].reshape(_FOLD_ROWS, columns).max(0)
        least = max(np.partition(tops, columns - count)[columns - count], _SMALLEST)
    return in_order(keys, np.flatnonzero(keys >= least))[:count]


def in_order(keys: Floats, ids: Ints) -> Ints:
    """`ids` by descending key, lower ids first in a tie."""
    bits = (keys[ids] + np.float32(0)).view(np.int32)  # -0 becomes 0
    descending = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))  # order-preserving map of floats to integers
    packed = (descending.astype(np.int64) << 32) | ids
    packed.sort()
    return packed & 0xFFFFFFFF
