"""A buffer with the magnitude of another one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.in_place import InPlace


@dataclass(frozen=True, slots=True, eq=False)
class MatchMagnitude(InPlace):
    """x = x times the root mean square of y, over that of x, by token.

    The mean square of x counts as at least `epsilon`.
    """

    y: str
    epsilon: float

    def definition(self, x: Tensor, y: Tensor) -> Tensor:
        own = x.square().mean(1, keepdim=True).clamp(min=self.epsilon)
        return x * (y.square().mean(1, keepdim=True).sqrt() / own.sqrt())
