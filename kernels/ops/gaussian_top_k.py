"""Only the highest channels of a token, by mean and deviation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import Table, check_floats


@dataclass(frozen=True, slots=True, eq=False)
class GaussianTopK:
    """x = max(x - (mean + deviations * standard deviation), 0), of the channels of a token.

    It keeps about the share of a normal distribution that lies above so many deviations.
    """

    x: str
    deviations: float

    def run(self, on: Pass) -> None:
        on.set(self.x, checked_gaussian_top_k(on.ops, on.buffers[self.x], self.deviations))


def checked_gaussian_top_k(ops: Table, x: Tensor, deviations: float) -> Tensor:
    """max(x - (mean + deviations * standard deviation), 0), by row: x [T, D] f32 → [T, D]."""
    if x.dim() != 2 or x.shape[1] < 2:
        raise ValueError(f"gaussian_top_k: x {list(x.shape)} has no rows of 2 and more columns")
    check_floats("gaussian_top_k", x)
    return ops.find("gaussian_top_k")(x, deviations)


def gaussian_top_k(x: Tensor, deviations: float) -> Tensor:
    """GaussianTopK of x [T, F]; the variance is that of a sample."""
    cutoff = x.mean(1, keepdim=True) + deviations * x.std(1, keepdim=True)
    return (x - cutoff).relu()
