"""Only the highest channels of a token, by mean and deviation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.in_place import InPlace


@dataclass(frozen=True, slots=True, eq=False)
class GaussianTopK(InPlace):
    """x = max(x - (mean + deviations * standard deviation), 0), of the channels of a token.

    It keeps about the share of a normal distribution that lies above so many deviations. The
    variance is that of a sample.
    """

    deviations: float

    def definition(self, x: Tensor, y: Tensor) -> Tensor:
        cutoff = x.mean(1, keepdim=True) + self.deviations * x.std(1, keepdim=True)
        return (x - cutoff).relu()

    def check(self, x: Tensor) -> None:
        if x.shape[1] < 2:
            raise ValueError(f"gaussian_top_k: x {list(x.shape)} has rows of one column")
