"""Interpreter of programs that counts its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from kernels import backends, interpreter
from kernels.program import KVBuffers, Program


class Interpreter(interpreter.Interpreter):
    """Runs a program's instructions one by one, and counts the runs."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, backends.choose().ops)
        self.passes = 0  # runs of the body
        self.steps = 0  # of these, decode steps of one token

    def hidden(
        self,
        tokens: Sequence[int],
        kv: KVBuffers,
        position: int,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> Tensor:
        self.passes += 1
        return super().hidden(tokens, kv, position, checkpoint)

    def step(self, token: int, kv: KVBuffers, position: int) -> Tensor:
        self.steps += 1
        return super().step(token, kv, position)
