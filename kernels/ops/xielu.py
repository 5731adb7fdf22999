"""The learned activation xIELU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import Table, dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class Xielu:
    """x = the expanded integral of the exponential linear unit, element by element.

    Above 0: positive * x² + beta * x. Else: (expm1(min(x, epsilon)) - x) * negative + beta * x.
    Source: https://arxiv.org/abs/2411.13010 equation 10
    """

    x: str
    positive: float
    negative: float
    beta: float
    epsilon: float

    def run(self, on: Pass) -> None:
        on.set(self.x, checked_xielu(on.ops, on.buffers[self.x], self))


def checked_xielu(ops: Table, x: Tensor, one: Xielu) -> Tensor:
    """Expanded integral of the exponential linear unit: x [...] f32 → [...] f32.

    Source: https://arxiv.org/abs/2411.13010 equation 10
    """
    if x.dtype != torch.float32:
        raise ValueError(f"xielu: x {list(x.shape)} is {dtype_name(x)}, not float32")
    return ops.find("xielu")(x, one)


def xielu(x: Tensor, one: Xielu) -> Tensor:
    """Above 0 a parabola, else an exponential; see the instruction."""
    above = one.positive * x.square()
    below = (torch.expm1(x.clamp(max=one.epsilon)) - x) * one.negative
    return torch.where(x > 0, above, below) + one.beta * x
