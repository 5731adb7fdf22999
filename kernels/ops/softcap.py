"""Soft cap of values, such as logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.in_place import InPlace


@dataclass(frozen=True, slots=True, eq=False)
class Softcap(InPlace):
    """x = cap * tanh(x / cap), within ±cap, which is above 0.

    Source: https://arxiv.org/abs/2408.00118 section 2
    """

    cap: float

    def definition(self, x: Tensor, y: Tensor) -> Tensor:
        return softcap(x, self.cap)

    def check(self, x: Tensor) -> None:
        if self.cap <= 0:
            raise ValueError(f"softcap: the cap is {self.cap}, not above 0")


def softcap(x: Tensor, cap: float) -> Tensor:
    """Soft cap: cap * tanh(x / cap), within (-cap, cap)."""
    return torch.tanh(x / cap) * cap
