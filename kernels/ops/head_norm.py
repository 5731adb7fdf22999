"""Norm of every head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.norm import checked_layer_norm, checked_rms_norm
from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class HeadNorm:
    """x = norm of each head of x [T, H*C], times weights that may differ by head; no bias."""

    x: str
    weight: Tensor  # f32 [H, C]
    epsilon: float
    centred: bool = True  # layer norm; else RMS norm

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x]
        heads = x.view(len(x), *self.weight.shape)
        ones = torch.ones(self.weight.shape[1], device=x.device)
        if self.centred:
            normed = checked_layer_norm(on.ops, heads, ones, None, self.epsilon)
        else:
            normed = checked_rms_norm(on.ops, heads, ones, self.epsilon)
        on.set(self.x, (normed * self.weight).view(x.shape))
