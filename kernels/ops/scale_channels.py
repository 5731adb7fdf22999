"""A factor for each channel."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.in_place import InPlace


@dataclass(frozen=True, slots=True, eq=False)
class ScaleChannels(InPlace):
    """x = x * weight, by channel."""

    weight: Tensor  # f32 [width of x]

    def definition(self, x: Tensor, y: Tensor) -> Tensor:
        return x * self.weight
