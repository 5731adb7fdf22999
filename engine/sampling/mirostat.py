"""Mirostat: a truncation that steers the surprisal of the drawn tokens to a target.

`mu`, twice the target at first, is the largest surprisal that is kept; each token moves it.

Source: Basu et al. 2020, Mirostat: A Neural Text Decoding Algorithm that Directly Controls
Perplexity, algorithms 1 and 2.
"""

from __future__ import annotations

import math

import numpy as np

from engine.sampling.candidates import (
    Candidates,
    Doubles,
    Floats,
    in_order,
    logsumexp,
    selected,
    top_indices,
)

_FITTED = 100  # most likely tokens from which the exponent of Zipf's law is estimated


def mirostat_1(row: Floats, mu: float) -> Candidates:
    """The k most likely of logits [V], with k from a fit of Zipf's law."""
    ids = top_indices(row, min(_FITTED, len(row)))
    probabilities = np.exp(row[ids].astype(np.float64) - logsumexp(row))
    k = _kept_by_zipf(probabilities[probabilities > 0], mu, len(row))
    return selected(row, top_indices(row, k))


def mirostat_2(row: Floats, mu: float) -> Candidates:
    """Those of logits [V] whose surprisal is at most mu bits, or the most likely one."""
    least = min(logsumexp(row) - mu * math.log(2), float(row.max()))
    return selected(row, in_order(row, np.flatnonzero(row >= np.float32(least))))


def next_mu(mu: float, candidates: Candidates, token: int, tau: float, eta: float) -> float:
    """mu after this token was drawn from the candidates."""
    probability = candidates.probability(token)
    return mu if probability == 0 else mu - eta * (-math.log2(probability) - tau)


def _kept_by_zipf(probabilities: Doubles, mu: float, vocabulary: int) -> int:
    """How many tokens to keep so that the expected surprisal is that of mu."""
    if len(probabilities) < 2:
        return 1
    rank = np.arange(1, len(probabilities))
    ratios = np.log((rank + 1) / rank)
    drops = np.log(probabilities[:-1] / probabilities[1:])
    exponent = float((ratios * drops).sum() / (ratios * ratios).sum())
    excess = exponent - 1
    if exponent <= 0:  # all are equally likely
        return vocabulary
    try:
        # excess / (1 - vocabulary^-excess), whose limit at 0 is 1 / ln(vocabulary)
        scaled = excess * math.log(vocabulary)
        share = 1.0 if scaled == 0 else scaled / -math.expm1(-scaled)
        kept = (2.0**mu * share / math.log(vocabulary)) ** (1 / exponent)
    except OverflowError:
        return vocabulary
    return int(min(max(kept, 1), vocabulary))
