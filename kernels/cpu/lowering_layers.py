"""Lowering of the instructions that are not fused: heads, streams, and layers with a state."""

from __future__ import annotations

from kernels.cpu.operations import Operations, activation_of, refuse_unpacked, weight_group
from kernels.cpu.schema import MAX_STREAMS, MAX_TAPS, Barrier, OpKind
from kernels.ops import (
    AddToStreams,
    Columns,
    HeadGate,
    HeadLinear,
    Instruction,
    Join,
    MixStreams,
    Recurrence,
    ShortConv,
)
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.programs.not_lowerable import refuse
from kernels.states.kv_pages import StateLayer
from kernels.states.layer_state import RecurrentState


def by_head(to: Operations, one: HeadGate | Columns | Join) -> None:
    """Emit an operation on the heads or some columns of rows."""
    match one:
        case HeadGate():
            heads = to.widths[one.gate]
            shape = {"heads": heads, "head_width": to.widths[one.x] // heads}
            activation = activation_of(one, one.activation)
            names = {"x": to.number(one.x), "y": to.number(one.gate)}
            to.add(OpKind.HEAD_GATE, activation=activation, **names, **shape)
            to.invalidate(one.x)
        case Columns():
            names = {"x": to.number(one.x), "out": to.number(one.out)}
            shape = {"width": to.widths[one.x], "head_width": one.width}
            to.add(OpKind.COLUMNS, start=one.start, **names, **shape)
            to.invalidate(one.out)
        case Join():
            shape = {"value_width": to.widths[one.out] // one.heads, "heads": one.heads}
            start = 0
            for x in one.xs:
                width = to.widths[x] // one.heads
                names = {"x": to.number(x), "out": to.number(one.out), "barrier": Barrier.NEVER}
                to.add(OpKind.JOIN, head_width=width, start=start, **names, **shape)
                start += width
            to.ops[-1].barrier = Barrier.ALWAYS
            to.invalidate(one.out)


def head_linear(to: Operations, one: HeadLinear) -> None:
    """Copy the columns of every head to rows of its own, multiply them as those of experts."""
    refuse_unpacked(one, one.weights)
    groups = set(map(weight_group, one.weights))
    refuse(one, {"with LoRA": bool(one.deltas), "of several formats": len(groups) > 1})
    heads, (rows, columns) = len(one.weights), one.weights[0].shape
    groups = to.number(f"head groups {heads}", 2 * heads + 2)
    some = to.number(f"head rows {heads * columns}", heads * columns)
    products = to.number(f"head products {heads * rows}", heads * rows)
    shape = {"experts": heads, "chosen": heads}
    head_width = to.widths[one.x] // heads
    widths = {"head_width": head_width, "value_width": columns, "start": one.start}
    to.add(OpKind.HEAD_ROWS, x=to.number(one.x), z=groups, out=some, **widths, **shape)
    if group := weight_group(one.weights[0]):
        to.add(OpKind.QUANTIZE, x=some, z=groups, quantize=group, width=columns, **shape)
        to.quantized = ("", 0)
    op = to.add(
        OpKind.EXPERT_LINEAR,
        x=some,
        z=groups,
        width=columns,
        count=1,
        expert_weights=to.weight_array(one.weights),
        **shape,
    )
    op.outs[0] = products
    out = to.number(one.out)
    to.add(OpKind.HEAD_COLUMNS, x=products, out=out, head_width=rows, **shape)
    to.invalidate(one.out)


def change_streams(to: Operations, one: MixStreams | AddToStreams) -> None:
    """Emit an operation on residual streams."""
    x, width = to.number(one.x), to.widths[one.x]
    match one:
        case MixStreams():
            count = round(to.widths[one.coefficients] ** 0.5)
            refuse(one, {f"of {count} streams": count > MAX_STREAMS})
            shape = {"heads": count, "head_width": width // count}
            to.add(OpKind.MIX_STREAMS, x=x, y=to.number(one.coefficients), **shape)
        case AddToStreams():
            names = {"x": x, "y": to.number(one.y)}
            if one.coefficients:
                names["z"] = to.number(one.coefficients)
            shape = {"heads": width // to.widths[one.y], "head_width": to.widths[one.y]}
            to.add(OpKind.ADD_TO_STREAMS, start=one.first, **names, **shape)
    to.invalidate(one.x)


def rotate(
    to: Operations, one: HadamardRotation, x: str, out: str, *, chosen: int = 0, back: bool = False
) -> None:
    """Emit a rotation of rows of `x`, so many for each token if `chosen`."""
    to.add(
        OpKind.ROTATE,
        x=to.number(x),
        out=to.number(out),
        width=to.widths[x] // max(chosen, 1),
        heads=one.heads[0],
        kv_heads=one.heads[1],
        pairs=one.block,
        weight=to.pointer(one.signs),
        start=back,
        chosen=chosen,
    )
    to.invalidate(out)


def short_conv(to: Operations, one: ShortConv, then: Instruction | None) -> None:
    taps = one.weight.shape[1]
    refuse(one, {"in both directions": not one.causal, f"of {taps} taps": taps > MAX_TAPS})
    _refuse_other_state(to, one)
    alone = isinstance(then, ShortConv) and then.x != one.x
    to.add(
        OpKind.SHORT_CONV,
        x=to.number(one.x),
        width=to.widths[one.x],
        layer=one.layer,
        taps=taps,
        weight=to.pointer(one.weight.T),
        bias=to.pointer(one.bias),
        activation=activation_of(one, one.activation),
        barrier=Barrier.NEVER if alone else Barrier.ALWAYS,
    )
    to.invalidate(one.x)


def recurrence(to: Operations, one: Recurrence) -> None:
    by_channel = one.decay_bias.numel() != one.rate.numel()
    refuse(one, {"with time steps by channel": not one.strength and by_channel})
    _refuse_other_state(to, one)
    shape = to.layers[one.layer].shape
    assert isinstance(shape, RecurrentState), f"layer {one.layer} has another state"
    op = to.add(
        OpKind.RECURRENCE,
        x=to.number(one.q),
        y=to.number(one.k),
        z=to.number(one.v),
        out=to.number(one.out),
        layer=one.layer,
        heads=shape.heads,
        kv_heads=to.widths[one.q] // shape.key_width,
        head_width=shape.key_width,
        value_width=shape.value_width,
        decays=to.widths[one.decay],
        rate=to.pointer(one.rate),
        decay_bias=to.pointer(one.decay_bias),
        skip=to.pointer(one.skip),
        scale=one.scale,
        epsilon=one.epsilon,
        floor=one.floor,
        corrected=one.corrected,
        tiled=one.tiled,
    )
    op.outs[0] = to.number(one.decay)
    op.outs[1] = to.number(one.strength) if one.strength else -1
    to.invalidate(one.out)


def _refuse_other_state(to: Operations, one: ShortConv | Recurrence) -> None:
    has_state = isinstance(to.layers[one.layer], StateLayer)
    refuse(one, {"of a layer without a state": not has_state})
