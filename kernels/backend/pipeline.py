"""Stages of a program: its parts between transfers, each recorded by the backend it is placed on.

This is pipeline parallelism over layers, one stage after the other: a backend lowers or interprets
its stage as a program, and the hidden states are copied to the device of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from kernels.backend.backend import HOST, Backend
from kernels.backend.placement import Placement
from kernels.ops import Instruction, Segment, Transfer
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program, Recorded

NOTHING_REFUSED: Mapping[str, Collection[str]] = {}


@runtime_checkable
class Preparable(Protocol):
    """A recorded program that can compile and capture its decode step before the first token."""

    def prepare(self) -> None:
        """Raises what the device raises."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a program without transfers, and the name of its backend."""

    backend: str
    program: Program  # body or head may be empty


def split(program: Program, embedding: str) -> tuple[Stage, ...]:
    """The stages of a program whose first instruction runs on the backend `embedding`.

    The head belongs to the last stage, or is one by itself if it begins with a transfer. Raises
    ValueError for a transfer of another buffer than the hidden states, or later in the head.
    """
    stages: list[Stage] = []
    backend, start = embedding, 0
    for at, one in enumerate(program.body):
        if isinstance(one, Transfer):
            _check(program, one)
            stages.append(Stage(backend, _part(program, start, at)))
            backend, start = one.backend, at + 1
    head = program.head
    if head and isinstance(head[0], Transfer):
        _check(program, head[0])
        stages.append(Stage(backend, _part(program, start, len(program.body))))
        backend, start, head = head[0].backend, len(program.body), head[1:]
    if any(isinstance(one, Transfer) for one in head):
        raise ValueError("Transfer: it can only be the first instruction of a head")
    last = _part(program, start, len(program.body), head)
    return (*stages, Stage(backend, last))


def record(
    program: Program,
    placement: Placement,
    refused: Mapping[str, Collection[str]] = NOTHING_REFUSED,
    *,
    keeps_logits: bool = False,
) -> Recorded:
    """A program recorded by the backends of a placement.

    Its logits are in the host's memory or, where it `keeps_logits`, on the device of the head.
    `refused` has, by name of a backend, the ops that it must not run, see `Backend.record`.
    """

    def recorded(backend: Backend, stage: Program) -> Recorded:
        return backend.record(stage, refused.get(backend.name, ()))

    return recorded_stages(program, placement, recorded, keeps_logits=keeps_logits)


def recorded_stages(
    program: Program,
    placement: Placement,
    record: Callable[[Backend, Program], Recorded],
    *,
    keeps_logits: bool = False,
) -> Recorded:
    """A program whose stages are recorded by `record`; a single one on the host is returned."""
    backends = {one.name: one for one in placement.backends}
    stages = [
        (backends[stage.backend], stage.program)
        for stage in split(program, placement.embedding.name)
    ]
    made = [(backend, record(backend, stage)) for backend, stage in stages]
    if len(made) == 1 and made[0][0].device == HOST:
        return made[0][1]
    to = made[-1][0].device if keeps_logits else HOST
    return PipelineProgram(made, head_alone=not stages[-1][1].body, logits_on=to)


def is_lowered(recorded: Recorded) -> bool:
    """Whether a backend lowered a program, or at least one of its stages."""
    if isinstance(recorded, PipelineProgram):
        return any(is_lowered(stage) for _, stage in recorded.stages)
    return not isinstance(recorded, Interpreter)


def not_lowered(recorded: Recorded) -> tuple[str, ...]:
    """What the backends of a program, or of its stages, lack to lower it: "Attend with sinks"."""
    if isinstance(recorded, PipelineProgram):
        found = (reason for _, stage in recorded.stages for reason in not_lowered(stage))
        return tuple(dict.fromkeys(found))
    return (recorded.reason,) if isinstance(recorded, Interpreter) and recorded.reason else ()


def has_equal_bits(recorded: Recorded) -> bool:
    """Whether a token gets the same bits in any batch, see `Recorded`."""
    return recorded.equal_bits


class PipelineProgram:
    """A program in stages; see `Recorded`. Hidden states are on the device of the last layer."""

    def __init__(
        self,
        stages: Sequence[tuple[Backend, Recorded]],
        head_alone: bool,
        logits_on: torch.device = HOST,
    ) -> None:
        """`head_alone`: the last stage has no body. `logits_on` is the device of the results."""
        self._logits_on = logits_on
        self.stages = stages
        self.equal_bits = all(stage.equal_bits for _, stage in stages)
        self.exact = all(stage.exact for _, stage in stages)
        self._body = stages[:-1] if head_alone else stages

    def prepare(self) -> None:
        """Compile and capture what the stages can, before the first token."""
        for _, stage in self.stages:
            if isinstance(stage, Preparable):
                stage.prepare()

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch → hidden states [T, D] f32."""
        for backend, stage in self._body:
            given = stage.hidden(batch, checkpoint, _moved(given, backend))
        assert given is not None
        return given

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        backend, stage = self.stages[-1]
        return stage.logits(hidden.to(backend.device)).to(self._logits_on)

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens, bit-identical to the two calls → logits [T, V] f32."""
        if self._body is self.stages:
            *before, (backend, last) = self.stages
            for one, stage in before:
                given = stage.hidden(batch, given=_moved(given, one))
            return last.step(batch, _moved(given, backend)).to(self._logits_on)
        return self.logits(self.hidden(batch, given=given))


def _moved(given: Tensor | None, backend: Backend) -> Tensor | None:
    """Hidden states on the device of the backend whose stage starts from them."""
    return None if given is None else given.to(backend.device)


def _check(program: Program, one: Transfer) -> None:
    if one.x != program.hidden:
        raise ValueError(f"Transfer: {one.x!r} is not the buffer of the hidden states")


def _part(program: Program, start: int, end: int, head: tuple[Instruction, ...] = ()) -> Program:
    """A program of the instructions from `start` to before `end` of the body, and a head."""
    body = program.body[start:end]
    used = {program.hidden}.union(*map(_buffers, (*body, *head)))
    return replace(
        program,
        body=body,
        layers=tuple(at - start for at in program.layers if start <= at < end),
        head=head,
        widths={name: width for name, width in program.widths.items() if name in used},
    )


def _buffers(one: Instruction) -> set[str]:
    """Names of the buffers that an instruction reads or writes: all its fields of text."""
    values = [getattr(one, field.name) for field in fields(one)]
    names = [value if isinstance(value, tuple) else (value,) for value in values]
    return {name for some in names for name in some if isinstance(name, str)}
