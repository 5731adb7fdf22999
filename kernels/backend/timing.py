"""Timing of a pass: the time of each operation or instruction of a program, run one by one.

Only for measurements: a pass of an answer runs none of this.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from kernels.backend.backend import Backend
from kernels.backend.listing import bytes_read, instruction_line
from kernels.backend.pipeline import split
from kernels.backend.placement import Placement
from kernels.ops import Instruction, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program, Recorded


@dataclass(frozen=True, slots=True)
class Timed:
    """An operation or instruction of one pass."""

    name: str
    weights: str  # formats and shapes
    seconds: float  # the least of several
    size: int  # bytes of the weights it read


def operation_times(
    program: Program,
    placement: Placement,
    refused: Mapping[str, Collection[str]],
    batch: Sequence[Segment],
    repetitions: int,
) -> list[Timed]:
    """The time of every operation of a pass, its head for the last token alone.

    Where a backend does not time the operations that it lowers to, each instruction is timed.
    """
    backends = {one.name: one for one in placement.backends}
    found: list[Timed] = []
    given: Tensor | None = None
    for stage in split(program, placement.embedding.name):
        backend = backends[stage.backend]
        excluded = refused.get(backend.name, ())
        recorded = backend.record(stage.program, excluded)
        given = None if given is None else given.to(backend.device)
        timed = backend.kernels.get(("operation_times", "F32"))
        some = timed(recorded, batch, repetitions, given) if timed else []
        found += some or _instruction_times(
            stage.program, backend, excluded, batch, repetitions, given
        )
        given = recorded.hidden(batch, given=given) if stage.program.body else given
    return found


def pass_seconds(recorded: Recorded, batch: Sequence[Segment], repetitions: int) -> float:
    """The least time of a whole pass, its head for the last token alone."""
    seconds: list[float] = []
    for _ in range(repetitions):
        started = time.perf_counter()
        if sum(len(one.tokens) for one in batch) == 1:
            recorded.step(batch)
        else:
            recorded.logits(recorded.hidden(batch)[-1:])
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _instruction_times(
    program: Program,
    backend: Backend,
    refused: Collection[str],
    batch: Sequence[Segment],
    repetitions: int,
    given: Tensor | None,
) -> list[Timed]:
    """The time of every instruction, run by the interpreter; `given` as in `Recorded`."""
    tokens = sum(len(one.tokens) for one in batch)
    found: list[Timed] = []
    for part, rows, count in ((program.body, batch, tokens), (program.head, (), 1)):
        # Each instruction is a layer, so that the interpreter calls the checkpoint between them.
        alone = replace(program, body=part, layers=tuple(range(len(part))), head=())
        interpreter = Interpreter(alone, backend.ops.without(refused))
        runs: list[list[float]] = []
        results: list[Tensor] = []
        for _ in range(repetitions if part else 0):
            result, seconds = _checkpoint_times(interpreter, backend, rows, given)
            results, runs = [result], [*runs, seconds]
        least = [min(some) for some in zip(*runs, strict=True)]
        found += [
            _timed(one, program, seconds, count) for one, seconds in zip(part, least, strict=True)
        ]
        given = next(iter(results), given)
        given = None if given is None else given[-1:]
    return found


def _checkpoint_times(
    interpreter: Interpreter, backend: Backend, batch: Sequence[Segment], given: Tensor | None
) -> tuple[Tensor, list[float]]:
    """The hidden states of a body, and the seconds between the calls of its checkpoint."""
    marks: list[float] = []

    def mark() -> None:
        backend.finish()
        marks.append(time.perf_counter())

    result = interpreter.hidden(batch, mark, given)
    mark()
    return result, [end - start for start, end in pairwise(marks)]


def _timed(one: Instruction, program: Program, seconds: float, tokens: int) -> Timed:
    line = instruction_line(one, program)
    return Timed(line.name, " ".join(line.weights), seconds, bytes_read(one, tokens))
