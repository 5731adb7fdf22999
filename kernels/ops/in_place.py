"""Instructions that change rows in place: a function of them, of one other buffer and of constants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from torch import Tensor

from kernels.ops.running import Pass
from kernels.ops.table import Table, check_floats


@dataclass(frozen=True, slots=True, eq=False)
class InPlace:
    """x = a function of its rows, of those of y and of constants; every row by itself.

    The fields of a subclass are perhaps another buffer `y` of the width of x, numbers, and vectors
    f32 [width of x]. Without a kernel for it a backend runs `definition`: CUDA as part of a recorded
    pass; on the processor and on Metal the whole model then runs op by op.
    """

    x: str

    @property
    def other(self) -> str:
        """The buffer y; x where there is none."""
        return getattr(self, "y", self.x)

    def run(self, on: Pass) -> None:
        """Change the rows of a pass."""
        x, y = on.buffers[self.x], on.buffers[self.other]
        on.set(self.x, checked_in_place(on.ops, self, x, y))

    def definition(self, x: Tensor, y: Tensor) -> Tensor:
        """What x [T, D] f32 becomes; y [T, D] f32 is x where there is no other buffer."""
        raise NotImplementedError

    def check(self, x: Tensor) -> None:
        """Raise ValueError, beginning with the op, for rows that it is not defined of."""


@cache
def op_name(kind: type) -> str:
    """The name of an instruction's op: "gaussian_top_k"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def checked_in_place(ops: Table, one: InPlace, x: Tensor, y: Tensor) -> Tensor:
    """What an instruction makes of x [T, D] f32, and of y [T, D] f32 → [T, D] f32."""
    name = op_name(type(one))
    if x.dim() != 2 or x.shape != y.shape:
        raise ValueError(f"{name}: x {list(x.shape)} is not like y {list(y.shape)}")
    check_floats(name, x, y)
    one.check(x)
    return ops.find(name)(one, x, y)


def defined(one: InPlace, x: Tensor, y: Tensor) -> Tensor:
    """The definition as a kernel."""
    return one.definition(x, y)
