"""Timing of a recorded program: one native call for each operation, in the order of a pass.

An operation that reads what an earlier one leaves in the scratch of its call, such as the quantized
copy of its input, is called together with that one, whose time is subtracted. Of the others the time
of a call that does nothing is subtracted.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.backend.timing import Timed
from kernels.cpu import library
from kernels.cpu.listing import bytes_read, operation
from kernels.cpu.program import Recorded
from kernels.cpu.schema import NativeOp, NativeProgram, OpKind
from kernels.ops import Segment
from kernels.programs.program import Recorded as AnyRecorded

_NOTHING = NativeOp(kind=OpKind.SCALE, width=1, scale=1.0, y=-1, z=-1, out=-1)  # of buffer 0


def operation_times(
    recorded: AnyRecorded, batch: Sequence[Segment], repetitions: int, given: Tensor | None
) -> list[Timed]:
    """The time of each operation, those of the head for the last token; none if it is interpreted.

    RoPE that is computed with the attention of a token counts as attention.
    """
    if not isinstance(recorded, Recorded):
        return []
    timing = _Timing(recorded, batch, given)
    runs = [timing.run() for _ in range(repetitions)]
    least = [min(some) for some in zip(*runs, strict=True)]
    return [
        Timed(line.name, " ".join(line.weights), seconds, bytes_read(op, tokens))
        for op, seconds, tokens, line in zip(
            recorded._ops, least, timing.tokens, timing.lines, strict=True
        )
    ]


class _Timing:
    """A batch of a recorded program, whose operations are run one by one."""

    def __init__(self, recorded: Recorded, batch: Sequence[Segment], given: Tensor | None) -> None:
        self._recorded = recorded
        self._given = given
        self._ids, self._batch = recorded._batch(batch)
        self._one = library.NativeBatch([(1, 0, ())])
        ops, end = recorded._ops, recorded._body_end
        self.lines = [operation(op, recorded._names) for op in ops]
        self.tokens = [len(self._ids)] * end + [1] * (len(ops) - end)
        self._calls = [_call(recorded, at) for at in range(len(ops))]
        self._nothing = _program(recorded, [_NOTHING])

    def run(self) -> list[float]:
        """Run all operations once; the seconds that each took."""
        recorded, end = self._recorded, self._recorded._body_end
        recorded._begin(self._ids, self._given)
        nothing = min(self._seconds(self._nothing, 0, 1, is_head=False) for _ in range(5))
        found = [self._difference(*call, nothing, is_head=False) for call in self._calls[:end]]
        if end == len(self._calls):
            return found
        width, hidden = recorded._widths[recorded._hidden], recorded._hidden
        last = recorded._buffers[hidden][: len(self._ids) * width].view(-1, width)[-1].clone()
        logits = torch.empty(recorded._widths[recorded._logits])
        recorded._set_buffer(hidden, last)
        recorded._set_buffer(recorded._logits, logits)
        found += [self._difference(*call, nothing, is_head=True) for call in self._calls[end:]]
        recorded._set_buffer(hidden, recorded._buffers[hidden])
        return found

    def _difference(
        self, program: NativeProgram, before: int, nothing: float, *, is_head: bool
    ) -> float:
        """The seconds of the operation after the first `before` ones of a program."""
        alone = self._seconds(program, 0, before, is_head=is_head) if before else nothing
        return max(self._seconds(program, 0, before + 1, is_head=is_head) - alone, 0.0)

    def _seconds(self, program: NativeProgram, first: int, end: int, *, is_head: bool) -> float:
        batch = (self._one if is_head else self._batch).structs
        ids = None if is_head else self._ids
        started = time.perf_counter()
        library.call("run", ctypes.byref(program), first, end, batch, len(batch), ids)
        return time.perf_counter() - started


def _call(recorded: Recorded, at: int) -> tuple[NativeProgram, int]:
    """A program for the operation number `at`, and how many others come before it there."""
    ops = recorded._ops
    op = ops[at]
    match op.kind:
        case OpKind.LINEAR | OpKind.EXPERT_LINEAR:
            before = _quantization(recorded, at)
        case OpKind.ATTEND | OpKind.ORDER_PAIRS:
            before = [ops[at - 1]]
        case _:
            before = []
    # The kernel of RoPE looks at the attention after it.
    after = [ops[at + 1]] if op.kind == OpKind.ROPE else []
    return _program(recorded, [*before, op, *after]), len(before)


def _quantization(recorded: Recorded, at: int) -> list[NativeOp]:
    """What makes the quantized copy that a product reads: none if it reads floats."""
    ops = recorded._ops
    for number in reversed(range(at)):
        before = ops[number]
        if before.kind == OpKind.QUANTIZE:
            return [before]
        if before.kind == OpKind.NORM and before.quantize:
            fields = {"x": before.out, "width": before.width, "quantize": before.quantize}
            return [NativeOp(kind=OpKind.QUANTIZE, y=-1, z=-1, out=-1, **fields)]
    return []


def _program(recorded: Recorded, ops: Sequence[NativeOp]) -> NativeProgram:
    """A native program of other operations over the buffers of a recorded one."""
    native = recorded._native
    return NativeProgram(
        ops=(NativeOp * len(ops))(*ops),
        buffers=native.buffers,
        layers=native.layers,
        cache_type=native.cache_type,
        op_bytes=native.op_bytes,
    )
