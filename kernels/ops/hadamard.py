"""Hadamard transform of blocks of columns; `kernels.ops.hadamard_rotation` defines it."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from kernels.ops.hadamard_rotation import Transform
from kernels.ops.table import Table, check_floats


def checked_hadamard(ops: Table, x: Tensor, block: int) -> Tensor:
    """Hadamard transform of every block of columns: x [T, D] f32 → [T, D] f32.

    `block` is a power of two; see `kernels.ops.hadamard_rotation.hadamard`.
    """
    if x.dim() != 2 or block < 1 or block & (block - 1) or x.shape[1] % block:
        raise ValueError(f"hadamard: x {list(x.shape)} has no blocks of {block} columns")
    check_floats("hadamard", x)
    return ops.find("hadamard")(x, block)


def transform_of(ops: Table) -> Transform:
    """The transform by the kernel of a backend."""
    return partial(checked_hadamard, ops)
