"""Values cut to a range."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.in_place import InPlace


@dataclass(frozen=True, slots=True, eq=False)
class Clip(InPlace):
    """x = min(max(x, least), most)."""

    least: float
    most: float

    def definition(self, x: Tensor, y: Tensor) -> Tensor:
        return x.clamp(self.least, self.most)

    def check(self, x: Tensor) -> None:
        if not self.least <= self.most:
            raise ValueError(f"clip: nothing is between {self.least} and {self.most}")
