"""Mix of residual streams (AltUp).

A buffer [T, S*D] has S residual streams (AltUp) side by side.
Source: https://arxiv.org/abs/2301.13310
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import Table, check_floats


@dataclass(frozen=True, slots=True, eq=False)
class MixStreams:
    """Of every token, each stream j of x = itself + sum over k of coefficients[j*S + k] * stream k."""

    x: str  # [T, S*D]
    coefficients: str  # [T, S*S]

    def run(self, on: Pass) -> None:
        on.set(
            self.x, checked_mix_streams(on.ops, on.buffers[self.x], on.buffers[self.coefficients])
        )


def checked_mix_streams(ops: Table, x: Tensor, coefficients: Tensor) -> Tensor:
    """Each stream plus a combination of all: x [T, S*D], coefficients [T, S*S] → [T, S*D], f32.

    Source: https://arxiv.org/abs/2301.13310
    """
    count = round(coefficients.shape[-1] ** 0.5)
    if x.dim() != 2 or coefficients.shape != (len(x), count**2) or x.shape[1] % count:
        shapes = f"x {list(x.shape)} does not fit coefficients {list(coefficients.shape)}"
        raise ValueError(f"mix_streams: {shapes}")
    check_floats("mix_streams", x, coefficients)
    return ops.find("mix_streams")(x, coefficients)


def mix_streams(x: Tensor, coefficients: Tensor) -> Tensor:
    """MixStreams of x [T, S*D] with coefficients [T, S*S]."""
    count = round(coefficients.shape[1] ** 0.5)
    streams = x.unflatten(1, (count, -1))
    mixed = torch.bmm(coefficients.unflatten(1, (count, count)), streams)
    return (streams + mixed).flatten(1)
