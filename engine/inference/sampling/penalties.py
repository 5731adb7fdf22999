"""Changes of logits before the filters: masks, logit bias and penalties for repetition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.inference.sampling.candidates import Floats
from engine.messages import Sampling

Mask = NDArray[np.uint32]  # [ceil(V / 32)]; bit i % 32 of word i // 32 is that of token i


def mask(row: Floats, allowed: Mask) -> Floats:
    """A copy of logits [V] with -inf for the tokens whose bit is 0, or which have no bit."""
    words = np.ascontiguousarray(allowed, dtype="<u4").view(np.uint8)
    bits = np.unpackbits(words, bitorder="little")[: len(row)]
    masked = np.full(len(row), -np.inf, np.float32)
    np.copyto(masked[: len(bits)], row[: len(bits)], where=bits.view(np.bool_))
    return masked


def penalizes(sampling: Sampling) -> bool:
    """Whether a repetition penalty is switched on."""
    return sampling.penalty_window != 0 and (
        sampling.repeat_penalty != 1
        or sampling.frequency_penalty != 0
        or sampling.presence_penalty != 0
    )


def penalize(row: Floats, recent: Sequence[int], sampling: Sampling) -> None:
    """Make the tokens of `recent` less likely in logits [V], in place.

    repeat divides a positive logit and multiplies a negative one; frequency is subtracted once per
    occurrence, presence once.
    """
    if not recent:
        return
    ids, counts = np.unique(np.array(recent, dtype=np.int64), return_counts=True)
    old, repeat = row[ids], np.float32(sampling.repeat_penalty)
    new = np.where(old > 0, old / repeat, old * repeat)
    new -= counts.astype(np.float32) * np.float32(sampling.frequency_penalty)
    row[ids] = new - np.float32(sampling.presence_penalty)
