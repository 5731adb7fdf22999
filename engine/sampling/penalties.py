"""Changes of logits before the filters: masks, logit bias and penalties for repetition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.messages import Sampling
from engine.sampling.candidates import Floats

Mask = NDArray[np.uint32]  # [ceil(V / 32)]; bit i % 32 of word i // 32 is that of token i


# For each byte of a mask the limits of eight logits: -inf where the bit is 0, else inf. [256, 8]
_LIMITS = np.where(np.arange(256)[:, None] >> np.arange(8) & 1, np.inf, -np.inf).astype(np.float32)


def mask(row: Floats, allowed: Mask) -> Floats:
    """A copy of logits [V] with -inf for the tokens whose bit is 0, or which have no bit."""
    masked = _LIMITS.take(np.ascontiguousarray(allowed, "<u4").view(np.uint8), axis=0).ravel()
    if len(masked) < len(row):
        missing = len(row) - len(masked)
        masked = np.concatenate((masked, np.full(missing, -np.inf, np.float32)))
    masked = masked[: len(row)]
    return np.minimum(masked, row, out=masked)


def penalizes(sampling: Sampling) -> bool:
    """Whether a repetition penalty is switched on."""
    return sampling.penalty_window != 0 and (
        sampling.repeat_penalty != 1
        or sampling.frequency_penalty != 0
        or sampling.presence_penalty != 0
    )


def penalize(row: Floats, recent: Sequence[int], sampling: Sampling) -> None:
    """Make the tokens of `recent` less likely in logits [V], in place; ids of images do not count.

    repeat divides a positive logit and multiplies a negative one; frequency is subtracted once per
    occurrence, presence once.
    """
    if not recent:
        return
    tokens = np.array(recent, dtype=np.int64)
    ids, counts = np.unique(tokens[tokens < len(row)], return_counts=True)
    old, repeat = row[ids], np.float32(sampling.repeat_penalty)
    new = np.where(old > 0, old / repeat, old * repeat)
    new -= counts.astype(np.float32) * np.float32(sampling.frequency_penalty)
    row[ids] = new - np.float32(sampling.presence_penalty)
