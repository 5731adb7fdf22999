"""A factor for each channel."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class ScaleChannels:
    """x = x * weight, by channel."""

    x: str
    weight: Tensor  # f32 [width of x]

    def run(self, on: Pass) -> None:
        on.set(self.x, on.buffers[self.x] * self.weight)
