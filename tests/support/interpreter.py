"""Interpreter of programs that counts its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from kernels import backends
from kernels.ops import Segment
from kernels.programs import interpreter
from kernels.programs.program import Program


class Interpreter(interpreter.Interpreter):
    """Runs a program's instructions one by one, and counts the runs."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, backends.choose().ops)
        self.passes = 0  # runs of the body
        self.steps = 0  # of these, decode steps

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        self.passes += 1
        return super().hidden(batch, checkpoint, given)

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        self.steps += 1
        return super().step(batch, given)
