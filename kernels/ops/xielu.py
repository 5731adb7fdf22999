"""The learned activation xIELU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.in_place import InPlace


@dataclass(frozen=True, slots=True, eq=False)
class Xielu(InPlace):
    """x = the expanded integral of the exponential linear unit, element by element.

    Above 0: positive * x² + beta * x. Else: (expm1(min(x, epsilon)) - x) * negative + beta * x.
    Source: https://arxiv.org/abs/2411.13010 equation 10
    """

    positive: float
    negative: float
    beta: float
    epsilon: float

    def definition(self, x: Tensor, y: Tensor) -> Tensor:
        above = self.positive * x.square()
        below = (torch.expm1(x.clamp(max=self.epsilon)) - x) * self.negative
        return torch.where(x > 0, above, below) + self.beta * x
