"""Keys or values quantized to 8 bits, with a scale for every 32 channels.

The KV cache of type Q8_0: native kernels multiply the codes, the reference dequantizes them. Rows
are quantized after a Hadamard transform, which spreads outlier channels and leaves a third of the
quantization error.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # channels that share a scale
_MAX_SPAN = 256  # channels that are transformed together


def hadamard(x: Tensor) -> Tensor:
    """Hadamard transform of the channels of x [..., C] f32: spreads outliers; its own inverse.

    The size of the matrix is the largest power of two that divides C, at most 256; the result is
    divided by its square root, so that dot products of rows are preserved. The order of additions
    is fixed and the same in the native kernels, whose results are bit-identical.
    Source: https://arxiv.org/abs/2404.00456
    """
    span = min(x.shape[-1] & -x.shape[-1], _MAX_SPAN)
    spans = x.unflatten(-1, (-1, span))
    # Butterfly rounds: each interleaves the sums and differences of channels half a span apart;
    # after log2(span) rounds the channels are in their original order.
    for _ in range(span.bit_length() - 1):
        spans = _sums_and_differences(*spans.unflatten(-1, (2, -1)).unbind(-2))
    return (spans * span**-0.5).flatten(-2)


def _sums_and_differences(a: Tensor, b: Tensor) -> Tensor:
    """Interleaved sums and differences: a and b [..., N] → [..., 2 * N], in one allocation."""
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
