"""Lowering of the instructions that are not products, attention or experts.

Norms and gates of heads, convolutions and recurrences are fused with their neighbours and leave
their results quantized where products read them. Rare instructions are torch operations in place,
which a captured step has like the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.cuda import heads, states
from kernels.cuda.heads import HeadGates, HeadNorms
from kernels.cuda.launch import Quantized
from kernels.cuda.states import RecurrenceOperands, Steps
from kernels.ops import (
    Add,
    AddRows,
    AddToStreams,
    Columns,
    Gate,
    HeadGate,
    HeadNorm,
    InPlace,
    Instruction,
    Join,
    MixStreams,
    Multiply,
    PositionScale,
    Recurrence,
    RowTable,
    Scale,
    ScaleChannels,
    ShortConv,
)
from kernels.programs.not_lowerable import NotLowerable, refuse
from kernels.programs.program import Program

Launch = Callable[[], None]

_MOST_CONVOLUTIONS = 3  # of one launch


class Lowering(Protocol):
    """The step that instructions are lowered for; see `kernels.cuda.lowering`."""

    program: Program
    tokens: int
    device: torch.device
    positions: Tensor  # i64 [tokens]
    buffers: dict[str, Tensor]
    quantized: dict[str, Quantized]  # copies of buffers
    looked_up: list[tuple[RowTable, Tensor]]  # rows that the host copies before a step

    def steps(self, group: int) -> Steps:
        """Positions and page tables of a group."""
        ...

    def reads_codes(self, name: str, then: Sequence[Instruction]) -> bool:
        """Whether all that read a buffer read its quantized copy."""
        ...

    def is_dead(self, name: str, then: Sequence[Instruction]) -> bool:
        """Whether no instruction reads the values that a buffer has before `then`."""
        ...

    def new_quantized(self, columns: int) -> Quantized:
        """Quantized activations to be written."""
        ...

    def written(self, name: str) -> None:
        """A buffer has other values now."""
        ...


def lower_layer(to: Lowering, rest: Sequence[Instruction], launches: list[Launch]) -> int:
    """Lower the first instruction, with those that are fused to it; returns their number."""
    one, then = rest[0], rest[1:]
    match one:
        case Gate() | HeadNorm() | HeadGate():
            return _heads(to, one, then, launches)
        case ShortConv():
            return _convolutions(to, one, then, launches)
        case Multiply() if _is_gated_convolution(one, then):
            return _gated_convolution(to, one, then, launches)
        case Recurrence():
            _recurrence(to, one, launches)
        case _:
            _elements(to, one, launches)
    return 1


# --- norms and gates of heads -------------------------------------------------------------------


def _heads(
    to: Lowering,
    one: Gate | HeadNorm | HeadGate,
    then: Sequence[Instruction],
    launches: list[Launch],
) -> int:
    after = then[0] if then else None
    norm, gate, out, count = None, None, "", 1
    if isinstance(one, HeadNorm):
        norm, x, out = one, one.x, one.x
        if isinstance(after, Gate) and _takes_norm(to, after, x, then[1:]):
            gate, out, count = after, after.out, 2
        gates = None if gate is None else _gates_of(to, gate, heads.AFTER)
    elif isinstance(one, HeadGate):
        x, out = one.x, one.x
        gates = HeadGates(heads.BY_HEAD, to.buffers[one.gate], one.activation)
    elif not one.up:
        x, out = one.gate, one.out
        gates = HeadGates(heads.ITSELF, None, one.activation, one.limit)
    else:
        x, out = one.up, one.out
        if isinstance(after, HeadNorm) and after.x == out:
            norm, count = after, 2
        gates = _gates_of(to, one, heads.AFTER if norm is None else heads.BEFORE)
    norms = (
        None if norm is None else HeadNorms(norm.weight.contiguous(), norm.epsilon, norm.centred)
    )
    values, width, tokens = to.buffers[x], to.program.widths[x], to.tokens
    codes = heads.can_quantize(norms, gates, width) and to.reads_codes(out, then[count - 1 :])
    made = to.new_quantized(width) if codes else None
    result = to.buffers[out]
    launches.append(lambda: heads.launch(values, norms, gates, tokens, result, made))
    _written(to, out, made)
    return count


def _takes_norm(to: Lowering, one: Gate, x: str, then: Sequence[Instruction]) -> bool:
    """Whether a gate multiplies the normed x, which nothing else reads."""
    return one.up == x != one.gate and (one.out == x or to.is_dead(x, then))


def _gates_of(to: Lowering, one: Gate, kind: int) -> HeadGates:
    return HeadGates(kind, to.buffers[one.gate], one.activation, one.limit)


def _written(to: Lowering, name: str, made: Quantized | None) -> None:
    """A buffer has other values now, floats or only their quantized copy."""
    to.written(name)
    if made is not None:
        to.quantized[name] = made


# --- layers with a state ------------------------------------------------------------------------


def _convolutions(
    to: Lowering, one: ShortConv, then: Sequence[Instruction], launches: list[Launch]
) -> int:
    """One convolution, or up to three of different buffers that follow each other."""
    _refuse_full(one)
    some = [one]
    for other in then[: _MOST_CONVOLUTIONS - 1]:
        if not isinstance(other, ShortConv) or not _is_alike(to, one, other):
            break
        if other.x in [each.x for each in some]:
            break
        _refuse_full(other)
        some.append(other)
    kv, tokens = to.program.kv, to.tokens
    every = [(_stored(each), kv.state(each.layer), to.buffers[each.x][:tokens]) for each in some]
    steps = to.steps(kv.state(one.layer).group)
    launches.append(lambda: states.convolution_step(every, steps))
    for each in some:
        to.written(each.x)
    return len(some)


def _refuse_full(one: ShortConv) -> None:
    refuse(one, {"in both directions": not one.causal})


def _stored(one: ShortConv) -> ShortConv:
    """The convolution with its weights as kernels read them."""
    return replace(one, weight=one.weight.contiguous())


def _is_alike(to: Lowering, one: ShortConv, other: ShortConv) -> bool:
    kv = to.program.kv
    same = one.weight.shape[1] == other.weight.shape[1] and one.activation == other.activation
    return same and kv.state(one.layer).group == kv.state(other.layer).group


def _is_gated_convolution(one: Multiply, then: Sequence[Instruction]) -> bool:
    return bool(then) and isinstance(then[0], ShortConv) and then[0].x == one.x != one.y


def _gated_convolution(
    to: Lowering, one: Multiply, then: Sequence[Instruction], launches: list[Launch]
) -> int:
    """A convolution of a product, multiplied again if the instruction after it says so."""
    convolution = then[0]
    assert isinstance(convolution, ShortConv)
    _refuse_full(convolution)
    second = then[1] if len(then) > 1 else None
    last, count = None, 2
    if isinstance(second, Multiply) and second.x == one.x != second.y:
        last, count = to.buffers[second.y], 3
    layer, name = to.program.kv.state(convolution.layer), one.x
    codes = to.reads_codes(name, then[count - 1 :])
    made = to.new_quantized(to.program.widths[name]) if codes else None
    every = [(_stored(convolution), layer, to.buffers[name][: to.tokens])]
    steps, first = to.steps(layer.group), to.buffers[one.y]
    launches.append(lambda: states.convolution_step(every, steps, first, last, made))
    _written(to, name, made)
    return count


def _recurrence(to: Lowering, one: Recurrence, launches: list[Launch]) -> None:
    layer, buffers = to.program.kv.state(one.layer), to.buffers
    strength = buffers[one.strength] if one.strength else None
    q, k, v, decay = (buffers[name] for name in (one.q, one.k, one.v, one.decay))
    rows = RecurrenceOperands(q, k, v, decay, strength, buffers[one.out])
    steps = to.steps(layer.group)
    launches.append(lambda: states.recurrence_step(one, layer, rows, steps))
    to.written(one.out)


# --- element by element -------------------------------------------------------------------------


def _elements(to: Lowering, one: Instruction, launches: list[Launch]) -> None:
    buffers = to.buffers
    match one:
        case Add():
            x, y, factor = buffers[one.x], buffers[one.y], one.scale
            launches.append(lambda: _add(x, y, factor))
        case Multiply():
            x, y = buffers[one.x], buffers[one.y]
            launches.append(lambda: _multiply(x, y))
        case Scale():
            x, factor = buffers[one.x], one.scale
            launches.append(lambda: _scale(x, factor))
        case ScaleChannels():
            x, weight = buffers[one.x], one.weight
            launches.append(lambda: _multiply(x, weight))
        case Columns():
            x, out = buffers[one.x][:, one.start : one.start + one.width], buffers[one.out]
            launches.append(lambda: _copy(out, x))
            to.written(one.out)
            return
        case Join():
            _join(to, one, launches)
            return
        case AddRows():
            rows = torch.zeros(to.tokens, to.program.widths[one.x], device=to.device)
            to.looked_up.append((one.table, rows))
            x, factor = buffers[one.x][: to.tokens], one.scale
            launches.append(lambda: _add(x, rows, factor))
        case PositionScale():
            x, positions = buffers[one.x][: to.tokens], to.positions
            launches.append(lambda: _scale_by_position(x, positions, one))
        case InPlace():
            x, y = buffers[one.x], buffers[one.other]
            launches.append(lambda: _copy(x, one.definition(x, y)))
        case _:
            _streams(to, one, launches)
            return
    to.written(one.x)


def _streams(to: Lowering, one: Instruction, launches: list[Launch]) -> None:
    """Instructions of residual streams."""
    buffers = to.buffers
    match one:
        case MixStreams():
            x, some = buffers[one.x], buffers[one.coefficients]
            launches.append(lambda: _copy(x, reference.mix_streams(x, some)))
        case AddToStreams():
            x, y, first = buffers[one.x], buffers[one.y], one.first
            factors = buffers[one.coefficients] if one.coefficients else None
            launches.append(lambda: _copy(x, reference.add_to_streams(x, y, factors, first)))
        case _:
            raise NotLowerable(one)
    to.written(one.x)


def _join(to: Lowering, one: Join, launches: list[Launch]) -> None:
    """Copies of the channels of every head, beside each other."""
    parts = [to.buffers[name].unflatten(1, (one.heads, -1)) for name in one.xs]
    places = to.buffers[one.out].unflatten(1, (one.heads, -1))
    start = 0
    for part in parts:
        width = part.shape[2]
        place = places[..., start : start + width]
        launches.append(lambda part=part, place=place: _copy(place, part))
        start += width
    to.written(one.out)


def _add(x: Tensor, y: Tensor, scale: float) -> None:
    x.add_(y, alpha=scale)


def _multiply(x: Tensor, y: Tensor) -> None:
    x.mul_(y)


def _scale(x: Tensor, scale: float) -> None:
    x.mul_(scale)


def _copy(to: Tensor, x: Tensor) -> None:
    to.copy_(x)


def _scale_by_position(x: Tensor, positions: Tensor, one: PositionScale) -> None:
    """Factors in double precision, as the definition has them."""
    steps = ((positions.float() + one.offset) / one.length).floor()
    growth = (1 + steps.double()).log().float()
    x.mul_((1 + one.strength * growth)[:, None])
