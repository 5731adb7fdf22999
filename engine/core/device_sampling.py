"""Draws of tokens on the device of the logits, so that one number for each answer leaves it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.core.sequence import RunningSequence
from kernels.backend.device_sampling import UNDECIDED, DeviceSampler, DeviceSampling


def sample_on_device(
    sampler: DeviceSampler, answers: Sequence[RunningSequence], logits: Sequence[Tensor]
) -> list[int | None]:
    """The next token of each answer whose draw the device can make; None: the host draws.

    `logits` are those of a pass, [wanted, V] each; an answer whose prompt goes on has none.
    """
    found: list[int | None] = [None] * len(answers)
    wanted: dict[int, DeviceSampling] = {}
    for at, one in enumerate(answers):
        sampling = one.device_sampling() if len(logits[at]) == 1 else None
        if sampling is not None:
            wanted[at] = sampling
    if wanted:
        rows = torch.cat([logits[at] for at in wanted])
        for at, token in zip(wanted, sampler.draw(rows, list(wanted.values())), strict=True):
            found[at] = None if token == UNDECIDED else token
    return found
