"""Coded: keys or values held as 8-bit codes, with a scale for every few channels.

What attention reads of a Q8_0 cache: kernels multiply the codes, the reference decodes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # channels that share a scale


@dataclass(frozen=True, slots=True)
class Coded:
    """Numbers [S, K, C], each a code times the scale of its block of 32 channels."""

    codes: Tensor  # i8 [S, K, C]
    scales: Tensor  # f16 [S, K, ceil(C / 32)]

    @property
    def shape(self) -> torch.Size:
        """That of the numbers: [S, K, C]."""
        return self.codes.shape

    @property
    def dtype(self) -> torch.dtype:
        """That of the codes, int8."""
        return self.codes.dtype

    def dim(self) -> int:
        """How many dimensions the numbers have."""
        return self.codes.dim()

    def dense(self) -> Tensor:
        """The numbers: f32 [S, K, C], contiguous."""
        each = self.scales.float().repeat_interleave(BLOCK, -1)[..., : self.shape[-1]].contiguous()
        return each.mul_(self.codes)
