"""Listing of a recorded program: its native operations in words, by the fields of nk_op."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.backend.listing import Line, unbroken
from kernels.cpu import library
from kernels.cpu.program import Recorded
from kernels.cpu.schema import Barrier, NativeActivation, NativeOp, NativeWeight, OpKind
from kernels.programs.program import Recorded as AnyRecorded
from kernels.weights.formats import FORMATS

_BUFFERS = ("x", "y", "z", "out", "add_to")
_VECTORS = ("weight", "bias", "query_norm", "key_norm", "sinks", "rate", "decay_bias", "skip")
# Fields that the other columns say.
_SAID = (*_BUFFERS, *_VECTORS, "kind", "barrier", "activation", "layer", "count", "experts")
_FIELDS = [member[0] for member in NativeOp._fields_]
_BY_LAYER = (OpKind.ROPE, OpKind.ATTEND, OpKind.SHORT_CONV, OpKind.RECURRENCE)


def operations(recorded: AnyRecorded) -> list[Line]:
    """The operations of a recorded program; none if it is interpreted."""
    if not isinstance(recorded, Recorded):
        return []
    return [operation(op, recorded._names) for op in recorded._ops]


def operation(op: NativeOp, names: list[str]) -> Line:
    """An operation in words."""
    kind = OpKind(op.kind)
    buffers = {name: [at] for name in _BUFFERS if (at := getattr(op, name)) >= 0}
    outs: list[int] = op.outs[: 2 if kind is OpKind.RECURRENCE else op.count]
    buffers |= {"outs": [at for at in outs if at >= 0]} if outs else {}
    matrices = [
        f"{count}*{_matrix(one)}" if count > 1 else _matrix(one) for one, count in matrices_of(op)
    ]
    numbers = _numbers(op)
    options = {
        **({"barrier": Barrier(op.barrier).name} if op.barrier != Barrier.ALWAYS else {}),
        **({"activation": NativeActivation(op.activation).name} if op.activation >= 0 else {}),
        **{name: value for name, value in numbers.items() if isinstance(value, int)},
    }
    return Line(
        kind.name,
        tuple(
            f"{name}={', '.join(unbroken(names[at]) for at in some)}"
            for name, some in buffers.items()
        ),
        (*matrices, *(name for name in _VECTORS if getattr(op, name))),
        tuple(f"{name}={value}" for name, value in options.items()),
        {name: f"{value:.6g}" for name, value in numbers.items() if isinstance(value, float)},
        (f"layer={op.layer}",) if kind in _BY_LAYER else (),
        once=kind is OpKind.ANGLES,
    )


def bytes_read(op: NativeOp, tokens: int) -> int:
    """Bytes of the matrices that an operation reads for some tokens; of experts the most."""
    if op.kind == OpKind.EMBED:
        return sum(_bytes(one) // one.rows * tokens for one, _ in matrices_of(op))
    chosen = op.chosen * tokens
    return sum(
        _bytes(one) * (min(count, chosen) if count > 1 else 1) for one, count in matrices_of(op)
    )


def matrices_of(op: NativeOp) -> Iterator[tuple[NativeWeight, int]]:
    """The matrices that an operation multiplies by or reads rows of, and how many are alike."""
    for native in op.weights:
        if native.rows:
            yield native, 1
    if op.expert_weights:
        for part in range(op.count):
            yield op.expert_weights[part * op.experts], op.experts


def _bytes(one: NativeWeight) -> int:
    return library.native().nk_packed_bytes(one.format, one.rows, one.columns)


def _matrix(one: NativeWeight) -> str:
    return f"{FORMATS[one.format].name}[{one.rows}x{one.columns}]"


def _numbers(op: NativeOp) -> dict[str, int | float]:
    """The numbers of an operation that say something, by field."""
    values = {name: getattr(op, name) for name in _FIELDS if name not in _SAID}
    numbers = {name: one for name, one in values.items() if isinstance(one, int | float)}
    return {name: one for name, one in numbers.items() if one not in (0, -1)}
