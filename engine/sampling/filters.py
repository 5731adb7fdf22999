"""Filters: each takes candidates and returns those it keeps, or changes their logits.

A filter keeps at least one candidate. Each can be tested on four numbers.
"""

from __future__ import annotations

import math

import numpy as np

from engine.sampling.candidates import (
    Candidates,
    Floats,
    in_order,
    logsumexp,
    nucleus_of,
)

# Below this temperature sampling is greedy: the division overflows, and the best token's
# probability is 1 in float32.
GREEDY_BELOW = 1e-6


def top_n_sigma(row: Floats, n: float) -> Floats:
    """Logits [V] with -inf for those more than n standard deviations below the largest.

    Source: Tang et al. 2024, Top-n-sigma: Not All Logits Are You Need, algorithm 1.
    """
    finite = row[row > -np.inf]
    least = finite.max() - n * float(finite.std(dtype=np.float64))
    return np.where(row >= np.float32(least), row, np.float32(-np.inf))


def typical(candidates: Candidates, p: float) -> Candidates:
    """Locally typical sampling: those with surprisal nearest to the entropy, until they sum to p.

    Source: Meister et al. 2022, Locally Typical Sampling, section 3.
    """
    surprisal = np.float32(logsumexp(candidates.logits)) - candidates.logits
    probabilities = np.exp(-surprisal)
    entropy = np.dot(probabilities, surprisal)
    closeness = -np.abs(surprisal - entropy)
    order = nucleus_of(closeness, probabilities, p)
    total = probabilities[order].cumsum(dtype=np.float64)
    kept = order[: np.count_nonzero(total <= p) + 1]
    narrow = candidates.keep(in_order(candidates.logits, kept))
    return Candidates(narrow.ids, narrow.logits)


def top_p(candidates: Candidates, p: float) -> Candidates:
    """The fewest whose probability sums to at least p (nucleus sampling); p 1 keeps all."""
    if p >= 1:
        return candidates
    total = candidates.probabilities.cumsum().astype(np.float32)  # as exact as the logits
    kept = np.count_nonzero(total < np.float32(p)) + 1
    return Candidates(candidates.ids[:kept], candidates.logits[:kept], candidates.ordered)


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Those at least p times as likely as the first."""
    likely = candidates.weights.astype(np.float32) >= np.float32(p)
    kept = max(np.count_nonzero(likely), 1)
    return Candidates(candidates.ids[:kept], candidates.logits[:kept], candidates.ordered)


def xtc(candidates: Candidates, threshold: float) -> Candidates:
    """Exclude top choices: of those at least as likely as the threshold, only the least likely.

    The caller draws whether this step is applied.
    """
    likely = np.flatnonzero(candidates.probabilities >= threshold)
    if len(likely) < 2:
        return candidates
    kept = np.ones(len(candidates.ids), np.bool_)
    kept[likely] = False
    kept[in_order(candidates.logits, likely)[-1]] = True
    return candidates.keep(kept)


def temperature(candidates: Candidates, value: float) -> Candidates:
    """Logits divided by the temperature: below 1 sharper, above 1 flatter, about 0 the best alone."""
    if value < GREEDY_BELOW:
        best = 0 if candidates.ordered else int(candidates.logits.argmax())
        return Candidates(candidates.ids[best : best + 1], candidates.logits[best : best + 1])
    scaled = candidates.logits / np.float32(value)
    return Candidates(candidates.ids, scaled, candidates.ordered)


def dynamic_temperature(
    candidates: Candidates, value: float, span: float, exponent: float
) -> float:
    """A temperature in value +- span: low where the model is certain, high where it is not.

    It grows with the entropy's share of its maximum, to the power of the exponent.
    """
    probabilities = candidates.probabilities
    likely = probabilities[probabilities > 0]
    if len(probabilities) == 1:
        return value
    entropy = -float((likely * np.log(likely)).sum())
    share = min(max(entropy / math.log(len(probabilities)), 0.0), 1.0)
    low, high = max(value - span, 0.0), value + span
    return low + (high - low) * share**exponent
