"""A buffer with the magnitude of another one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import Table, check_floats


@dataclass(frozen=True, slots=True, eq=False)
class MatchMagnitude:
    """x = x times the root mean square of `like`, over that of x, by token.

    The mean square of x counts as at least `epsilon`.
    """

    x: str
    like: str
    epsilon: float

    def run(self, on: Pass) -> None:
        x, like = on.buffers[self.x], on.buffers[self.like]
        on.set(self.x, checked_match_magnitude(on.ops, x, like, self.epsilon))


def checked_match_magnitude(ops: Table, x: Tensor, like: Tensor, epsilon: float) -> Tensor:
    """x with the root mean square of `like`, by row: both [T, D] f32 → [T, D] f32.

    The mean square of x counts as at least `epsilon`.
    """
    if x.dim() != 2 or x.shape != like.shape:
        raise ValueError(f"match_magnitude: x {list(x.shape)} is not like {list(like.shape)}")
    check_floats("match_magnitude", x, like)
    return ops.find("match_magnitude")(x, like, epsilon)


def match_magnitude(x: Tensor, like: Tensor, epsilon: float) -> Tensor:
    """MatchMagnitude of x [T, D] and like [T, D]."""
    own = x.square().mean(1, keepdim=True).clamp(min=epsilon)
    return x * (like.square().mean(1, keepdim=True).sqrt() / own.sqrt())
