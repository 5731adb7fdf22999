"""Keys or values quantized to 8 bits, with a scale for every 32 channels.

What attention reads of a Q8_0 cache: kernels multiply the codes, the reference decodes them. Codes
are of rotated rows, in which no channel stands out: of what 8 bits lose, that leaves a third.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # channels that share a scale
_MOST_SPAN = 256  # channels


def hadamard(x: Tensor) -> Tensor:
    """Hadamard transform of the channels of x [..., C] f32: spreads outliers; its own inverse.

    They are multiplied by the Hadamard matrix of the greatest power of two that divides C, at most
    256, over its root. Dot products of rotated rows are those of the rows. Sums are taken in an
    order of their own, which native kernels share: their bits are these.
    Source: https://arxiv.org/abs/2404.00456
    """
    span = min(x.shape[-1] & -x.shape[-1], _MOST_SPAN)
    spans = x.unflatten(-1, (-1, span))
    # Each channel and the one half a span away become neighbours: after as many rounds as a
    # channel's number has bits, all are where they were.
    for _ in range(span.bit_length() - 1):
        spans = _sums_and_differences(*spans.unflatten(-1, (2, -1)).unbind(-2))
    return (spans * span**-0.5).flatten(-2)


def _sums_and_differences(a: Tensor, b: Tensor) -> Tensor:
    """a and b [..., N] → [..., 2 * N], each sum beside its difference, and no copy but that."""
    both = torch.empty(*a.shape, 2, device=a.device)
    torch.add(a, b, out=both[..., 0])
    torch.sub(a, b, out=both[..., 1])
    return both.flatten(-2)


@dataclass(frozen=True, slots=True)
class QuantizedKV:
    """Quantized rows [S, K, C]: `hadamard` of a row is code times scale of each block of 32."""

    codes: Tensor  # i8 [S, K, C]
    scales: Tensor  # f16 [S, K, ceil(C / 32)]

    @property
    def shape(self) -> torch.Size:
        """Shape of the rows: [S, K, C]."""
        return self.codes.shape

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the codes: int8."""
        return self.codes.dtype

    def dim(self) -> int:
        """Number of dimensions of the rows."""
        return self.codes.dim()

    def dense(self) -> Tensor:
        """Dequantized rows: f32 [S, K, C], contiguous."""
        each = self.scales.float().repeat_interleave(BLOCK, -1)[..., : self.shape[-1]].contiguous()
        return hadamard(each.mul_(self.codes))
