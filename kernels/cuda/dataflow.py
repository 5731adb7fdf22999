"""Buffers that instructions read and write, which decides what a kernel leaves for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernels.cuda import weights
from kernels.ops import (
    Add,
    AddToStreams,
    Attend,
    Columns,
    Embed,
    Experts,
    Gate,
    HeadGate,
    Instruction,
    Join,
    Linear,
    MatchMagnitude,
    MixStreams,
    Multiply,
    Norm,
    Recurrence,
)


class Uses(NamedTuple):
    """How the values of a buffer are read before it is written again."""

    floats: bool
    codes: bool  # its quantized copy
    deferred: bool  # codes by products alone, which complete a norm


def uses(name: str, then: Sequence[Instruction]) -> Uses:
    """How the instructions `then` read a buffer."""
    floats = codes = experts = False
    for one in then:
        if isinstance(one, Linear) and one.x == name:
            reading = [weights.reads_floats(weight.format) for weight in one.weights]
            floats |= any(reading) or any(one.deltas)
            codes |= not all(reading)
        elif isinstance(one, Experts) and one.x == name:
            reading = [weights.reads_floats(one.gates[0].format)]
            floats |= any(reading)
            codes |= not any(reading)
            experts = True
        elif name in _read(one):
            floats = True
        if name in _written(one):
            break
    return Uses(floats, codes, codes and not floats and not experts)


def is_gate_of(one: Linear, gate: Gate) -> bool:
    """Whether an activation follows its two products and nothing else reads these."""
    rows = {weight.shape[0] for weight in one.weights}
    return one.outs == (gate.gate, gate.up) and gate.out == gate.gate and len(rows) == 1


def _read(one: Instruction) -> tuple[str, ...]:
    match one:
        case Attend():
            return one.q, one.k, one.v
        case Recurrence():
            return one.q, one.k, one.v, one.decay, one.strength
        case Gate():
            return one.gate, one.up
        case HeadGate():
            return one.x, one.gate
        case Add() | Multiply() | MatchMagnitude():
            return one.x, one.y
        case Experts():
            return one.x, one.scores
        case Join():
            return one.xs
        case MixStreams():
            return one.x, one.coefficients
        case AddToStreams():
            return one.x, one.y, one.coefficients
        case Embed():
            return ()
        case _:  # the others change x, or read it alone
            return (getattr(one, "x", ""),)


def _written(one: Instruction) -> tuple[str, ...]:
    match one:
        case Linear():
            return one.outs
        case Norm() | Embed() | Attend() | Gate() | Experts() | Columns() | Join() | Recurrence():
            return (one.out,)
        case _:
            return ()
