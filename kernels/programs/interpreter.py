"""Interpreter of programs: runs each instruction with the ops of a backend.

It defines what a program computes. A backend that lowers programs must give the same bits as its
ops run one by one here. Models run on it where no backend lowers their program: without native
kernels, and after a kernel failed its check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernels.ops import Attending, Ops, Pass, Segment
from kernels.programs.program import Program

_HOST = torch.device("cpu")


class Interpreter:
    """A program that is run op by op; results belong to the caller."""

    equal_bits = False  # torch's sums depend on the size of a batch
    exact = True

    def __init__(
        self,
        program: Program,
        ops: Ops,
        attending: Callable[[Sequence[Segment]], Attending] | None = None,
        reason: str = "",
        device: torch.device = _HOST,
    ) -> None:
        """`attending` makes what a batch's causal attention runs on, in place of several ops.

        `reason` is what a backend lacks to lower the program: "Attend with sinks". `device` has
        the buffers.
        """
        self.program = program
        self.reason = reason
        self._ops, self._device = ops, device
        self._attending = attending

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch → hidden states [T, D] f32."""
        buffers = {} if given is None else {self.program.hidden: given}
        attending = None if self._attending is None else self._attending(batch)
        on = self._pass(buffers, batch, attending, checkpoint)
        for at, one in enumerate(self.program.body):
            if at in self.program.layers:
                checkpoint()
            one.run(on)
        return on.buffers[self.program.hidden]

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        on = self._pass({self.program.hidden: hidden}, ())
        for one in self.program.head:
            one.run(on)
        return on.buffers[self.program.logits]

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens of a batch → logits [T, V] f32."""
        return self.logits(self.hidden(batch, given=given))

    def _pass(
        self,
        buffers: dict[str, Tensor],
        batch: Sequence[Segment],
        attending: Attending | None = None,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> Pass:
        program = self.program
        sizes = program.widths, program.kv
        return Pass(self._ops, *sizes, buffers, batch, attending, checkpoint, self._device)
