"""Instructions of mixers: attention, and what takes its place in hybrid models."""

from __future__ import annotations

from engine.models.forward_parts import Deltas, convolution, products, sized
from engine.models.forward_parts import norm as norm_of
from engine.models.mixers import (
    Attention,
    DeltaNet,
    LatentAttention,
    Mixer,
    ParallelMixers,
    QueryScale,
    ShortConvolution,
    StateSpace,
)
from engine.models.parts import HeadNorms, Norm
from kernels import ops
from kernels.ops import Instruction

# Buffer names, to which their widths are added.
QUERY, KEY, VALUE, MIXED = "query", "key", "value", "mixed"
COMPRESSED, LATENT, QUERY_ROPE, KEY_ROPE = "compressed query", "latent", "query rope", "key rope"
ABSORBED, EXPANDED = "absorbed query", "expanded values"
# Of layers in place of attention.
CONVOLVED, BEFORE, AFTER = "convolved", "before", "after"
LINEAR_QUERY, LINEAR_KEY, LINEAR_VALUE = "linear query", "linear key", "linear value"
DECAY, STRENGTH, RECURRENT, OUTPUT_GATE = "decay", "strength", "recurrent", "output gate"
LOW = "low rank"
SUMMED, MIXER_INPUT = "summed mixers", "mixer input"


def mixer(one: Mixer, layer: int, source: str, out: str, deltas: Deltas) -> list[Instruction]:
    """From the buffer `source` to `out`; `layer` is the index of its first state."""
    match one:
        case Attention():
            return _attention(one, layer, source, out, deltas)
        case LatentAttention():
            return _latent_attention(one, layer, source, out, deltas)
        case ShortConvolution():
            return _short_convolution(one, layer, source, out, deltas)
        case DeltaNet():
            return _delta_net(one, layer, source, out, deltas)
        case StateSpace():
            return _state_space(one, layer, source, out, deltas)
        case ParallelMixers():
            return _parallel(one, layer, source, out, deltas)


def _attention(
    one: Attention, layer: int, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    query = sized(QUERY, one.query)
    key = value = ""
    heads = [(one.query, query)]
    before: list[Instruction] = []  # what is not a part of the attention
    if one.key is not None:
        key, value = sized(KEY, one.key), sized(VALUE, one.key)
        heads.append((one.key, key))
        if one.value is None:
            before.append(ops.Columns(key, 0, one.key.weight.shape[0], value))
        else:
            heads.append((one.value, value))
    query_norm, key_norm = one.query_norm, one.key_norm
    if isinstance(query_norm, HeadNorms) or isinstance(key_norm, HeadNorms):
        pairs = ((query_norm, query), (key_norm, key))
        before += [_head_norm(norm, name) for norm, name in pairs if name and norm is not None]
        query_norm = key_norm = None
    elif query_norm is not None and one.norms_whole:
        before.append(norm_of(query_norm, query, query))
        if key_norm is not None:
            before.append(norm_of(key_norm, key, key))
        query_norm = key_norm = None
    if one.value_norm is not None and value:
        before.append(_head_norm(one.value_norm, value))
    if one.query_scale is not None:
        before.append(_query_scale(one.query_scale, query))
    mixed = f"{MIXED} {one.query.weight.shape[0]}"
    gate = "" if one.gate is None else sized(OUTPUT_GATE, one.gate.projection)
    if one.gate is not None:
        heads.append((one.gate.projection, gate))
    return [
        products(source, tuple(heads), deltas),
        *before,
        ops.Attend(
            q=query,
            k=key,
            v=value,
            out=mixed,
            layer=layer,
            head_width=one.head_width,
            query_norm=None if query_norm is None else query_norm.weight,
            key_norm=None if key_norm is None else key_norm.weight,
            epsilon=0.0 if query_norm is None else query_norm.epsilon,
            frequencies=one.rope.frequencies,
            interleaved=one.rope.interleaved,
            rope_scale=one.rope.scale,
            scale=one.scale,
            window=one.window,
            cap=one.cap,
            causal=one.causal,
            norms_rotated=one.norms_rotated,
            sinks=one.sinks,
            chunk=one.chunk,
            axes=one.rope.axes,
        ),
        *_gated_output(one, gate, mixed),
        *([] if one.output_norm is None else [norm_of(one.output_norm, mixed, mixed)]),
        products(mixed, ((one.output, out),), deltas),
    ]


def _gated_output(one: Attention, gate: str, mixed: str) -> list[Instruction]:
    """The gate of the attended values, by channel or by head."""
    if one.gate is None:
        return []
    if one.gate.projection.weight.shape[0] == one.query.weight.shape[0]:
        return [ops.Gate(gate, mixed, one.gate.activation, mixed)]
    return [ops.HeadGate(mixed, gate, one.gate.activation)]


def _head_norm(norm: Norm | HeadNorms, x: str) -> ops.HeadNorm:
    assert isinstance(norm, HeadNorms), "queries and keys have norms of one kind"
    return ops.HeadNorm(x, norm.weight, norm.epsilon, norm.centred)


def _query_scale(one: QueryScale, x: str) -> ops.PositionScale:
    return ops.PositionScale(x, one.strength, one.length, one.offset)


def _latent_attention(
    one: LatentAttention, layer: int, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    """Attention of one key/value head, whose key is the rotated part beside the latent vector."""
    heads, head_width = len(one.absorb), one.head_width
    latent, key_rope = sized(LATENT, one.latent), sized(KEY_ROPE, one.key_rope)
    query, query_rope = sized(QUERY, one.query), sized(QUERY_ROPE, one.query_rope)
    absorbed = f"{ABSORBED} {heads * one.absorb[0].shape[0]}"
    joined, key = f"{QUERY} {heads * head_width}", f"{KEY} {head_width}"
    if joined == query:  # of equal widths
        joined = f"joined {joined}"
    mixed, expanded = f"{MIXED} {heads * head_width}", sized(EXPANDED, one.output, columns=True)
    made: list[Instruction] = []
    if one.compressed is None:
        outs = ((one.query, query), (one.query_rope, query_rope))
        made.append(
            products(source, (*outs, (one.latent, latent), (one.key_rope, key_rope)), deltas)
        )
    else:
        small = sized(COMPRESSED, one.compressed)
        outs = ((one.compressed, small), (one.latent, latent), (one.key_rope, key_rope))
        made.append(products(source, outs, deltas))
        if one.compressed_norm is not None:
            made.append(norm_of(one.compressed_norm, small, small))
        made.append(products(small, ((one.query, query), (one.query_rope, query_rope)), deltas))
    made += [
        norm_of(one.latent_norm, latent, latent),
        ops.HeadLinear(query, one.absorb, absorbed, deltas=deltas(one.names[0], None)),
        ops.Join((query_rope, absorbed), joined, heads),
        ops.Join((key_rope, latent), key),
    ]
    if one.query_scale is not None:
        made.append(_query_scale(one.query_scale, joined))
    gated: list[Instruction] = []
    if one.gate is not None:
        gate = sized(OUTPUT_GATE, one.gate.projection)
        made.append(products(source, ((one.gate.projection, gate),), deltas))
        gated.append(ops.HeadGate(expanded, gate, one.gate.activation))
    return [
        *made,
        ops.Attend(
            q=joined,
            k=key,
            v="",  # the keys, of which the rotated part is not read: see HeadLinear
            out=mixed,
            layer=layer,
            head_width=head_width,
            query_norm=None,
            key_norm=None,
            epsilon=0.0,
            frequencies=one.rope.frequencies,
            interleaved=one.rope.interleaved,
            rope_scale=one.rope.scale,
            scale=one.scale,
        ),
        ops.HeadLinear(mixed, one.expand, expanded, one.rope_width, deltas(one.names[1], None)),
        *gated,
        products(expanded, ((one.output, out),), deltas),
    ]


def _short_convolution(
    one: ShortConvolution, layer: int, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    inputs = ((one.before, BEFORE), (one.after, AFTER), (one.value, CONVOLVED))
    return [
        products(source, inputs, deltas),
        ops.Multiply(CONVOLVED, BEFORE),
        convolution(one.convolution, CONVOLVED, layer),
        ops.Multiply(CONVOLVED, AFTER),
        products(CONVOLVED, ((one.output, out),), deltas),
    ]


def _delta_net(
    one: DeltaNet, layer: int, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    heads = (LINEAR_QUERY, LINEAR_KEY, LINEAR_VALUE)
    outs = [*zip((one.query, one.key, one.value), heads, strict=True), (one.strength, STRENGTH)]
    made: list[Instruction] = []
    for last, low, name in (
        (one.decay, one.decay_low, DECAY),
        (one.gate, one.gate_low, OUTPUT_GATE),
    ):
        if low is None:
            outs.append((last, name))
        else:
            small = f"{LOW} {name}"
            outs.append((low, small))
            made.append(products(small, ((last, name),), deltas))
    return [
        products(source, tuple(outs), deltas),
        *made,
        *(
            convolution(each, name, layer + at)
            for at, (each, name) in enumerate(zip(one.convolutions, heads, strict=True))
        ),
        ops.Recurrence(
            *(*heads, DECAY, STRENGTH, RECURRENT),
            layer=layer + len(heads),
            rate=one.rate,
            decay_bias=one.decay_bias,
            scale=one.key_width**-0.5,
            epsilon=one.epsilon,
            corrected=one.corrected,
            tiled=one.tiled,
            floor=one.floor,
        ),
        _recurrent_norm(one.norm),
        ops.Gate(OUTPUT_GATE, RECURRENT, one.activation, OUTPUT_GATE),
        products(OUTPUT_GATE, ((one.output, out),), deltas),
    ]


def _recurrent_norm(norm: Norm | HeadNorms) -> Instruction:
    if isinstance(norm, HeadNorms):
        return _head_norm(norm, RECURRENT)
    return norm_of(norm, RECURRENT, RECURRENT)


def _state_space(
    one: StateSpace, layer: int, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    names = (LINEAR_VALUE, LINEAR_KEY, LINEAR_QUERY)
    inputs = (one.gate, one.value, one.key, one.query, one.step)
    outs = tuple(zip(inputs, (OUTPUT_GATE, *names, DECAY), strict=True))
    return [
        products(source, outs, deltas),
        *(
            convolution(each, name, layer + at)
            for at, (each, name) in enumerate(zip(one.convolutions, names, strict=True))
        ),
        ops.Recurrence(
            q=LINEAR_QUERY,
            k=LINEAR_KEY,
            v=LINEAR_VALUE,
            decay=DECAY,
            strength="",
            out=RECURRENT,
            layer=layer + len(names),
            rate=one.rate,
            decay_bias=one.step_bias,
            scale=1.0,
            epsilon=-1.0,
            corrected=False,
            skip=one.skip,
        ),
        ops.Gate(OUTPUT_GATE, RECURRENT, ops.Activation.SILU, OUTPUT_GATE),
        *([] if one.norm is None else [_head_norm(one.norm, OUTPUT_GATE)]),
        products(OUTPUT_GATE, ((one.output, out),), deltas),
    ]


def _parallel(
    one: ParallelMixers, layer: int, source: str, out: str, deltas: Deltas
) -> list[Instruction]:
    """The first mixer writes to `out`, the others are added."""
    made: list[Instruction] = []
    each = zip(one.mixers, one.input_scales, one.output_scales, strict=True)
    for at, (part, input_scale, output_scale) in enumerate(each):
        into = SUMMED if at else out
        x = source
        if input_scale != 1.0:
            width = part.projections[0].weight.shape[1]
            x = f"{MIXER_INPUT} {width}"
            made += [ops.Columns(source, 0, width, x), ops.Scale(x, input_scale)]
        made += mixer(part, layer, x, into, deltas)
        if at:
            made.append(ops.Add(out, SUMMED, output_scale))
        elif output_scale != 1.0:
            made.append(ops.Scale(out, output_scale))
        layer += len(part.states)
    return made
