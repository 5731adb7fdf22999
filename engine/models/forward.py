"""Forward pass: a decoder and its LoRA stack as a `Program`, instructions over named buffers.

The one definition of what a model computes. `kernels.interpreter` runs it op by op in torch; a
backend lowers it, to run a whole token in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

from engine.lora.delta import Part
from engine.lora.stack import EMBEDDING, NO_ADAPTERS, Stack
from engine.models.layers import (
    MLP,
    Attention,
    Block,
    Convolution,
    Decoder,
    DeltaNet,
    Experts,
    GatedMLP,
    HeadNorms,
    Mixer,
    Norm,
    Projection,
    ShortConvolution,
)
from kernels import program
from kernels.backend import Backend
from kernels.kv_pages import KVLayout
from kernels.program import Instruction, LoraDelta, Program

# LoRA delta of a tensor, or of the rows of a fused one; None if no adapter changes it.
Deltas = Callable[[str, Part | None], LoraDelta | None]

# Buffer names. CHANGE holds an output of attention or MLP before it is added to the stream.
STREAM, NORMED, CHANGE = "stream", "normed", "change"
# Results, which no body may use: they belong to the caller.
LOGITS, STATES, SCORES = "logits", "states", "scores"
DENSE = "dense"
QUERY, KEY, VALUE, MIXED = "query", "key", "value", "mixed"
GATE, UP, ROUTES = "gate", "up", "routes"
# Of layers in place of attention, whose widths may be others.
CONVOLVED, BEFORE, AFTER = "convolved", "before", "after"
LINEAR_QUERY, LINEAR_KEY, LINEAR_VALUE = "linear query", "linear key", "linear value"
DECAY, STRENGTH, RECURRENT, OUTPUT_GATE = "decay", "strength", "recurrent", "output gate"


class Result(Enum):
    """What the head of a program computes from hidden states."""

    LOGITS = "logits"  # [T, V]
    NORMED = "normed"  # [T, D], the hidden states after the final norm: embeddings before pooling
    SCORES = "scores"  # [T, n], of `Decoder.ranking`


def forward_program(
    decoder: Decoder,
    kv: KVLayout,
    stack: Stack = NO_ADAPTERS,
    result: Result = Result.LOGITS,
) -> Program:
    """The program of a decoder over KV pages, whose products have the LoRA terms of `stack`.

    An empty stack changes no bit of the result. What `Program.logits` names is the `result`.
    """
    placement = decoder.placement
    embed = program.Embed(
        decoder.embedding,
        STREAM,
        decoder.embedding_scale,
        _delta(placement.embedding, stack, EMBEDDING),
        decoder.positions,
        decoder.types,
        decoder.separator,
    )
    paged = [number for number in decoder.paged if number >= 0]
    body: list[Instruction] = [embed]
    if decoder.embedding_norm is not None:
        body.append(_norm(decoder.embedding_norm, STREAM, STREAM))
    layers: list[int] = []
    first = decoder.first_states
    before = placement.embedding
    for layer, (block, backend) in enumerate(zip(decoder.blocks, placement.layers, strict=True)):
        body += _transfer(before, backend)
        layers.append(len(body))
        if decoder.pager is not None and (number := decoder.paged[layer]) >= 0:
            at = paged.index(number)
            upcoming = (*paged[at + 1 :], *paged[:at])
            body.append(program.Fetch(decoder.pager, number, upcoming))
        body += _block(block, first[layer], partial(_delta, backend, stack))
        before = backend
    if decoder.pager is not None and paged:
        body.append(program.Fetch(decoder.pager, -1, tuple(paged)))
    made, head = _head(decoder, result, partial(_delta, placement.head, stack))
    head = [*_transfer(before, placement.head), *head]
    return Program(
        body=tuple(body),
        layers=tuple(layers),
        head=tuple(head),
        hidden=STREAM,
        logits=made,
        widths=_widths((*body, *head)),
        kv=kv,
    )


def _head(decoder: Decoder, result: Result, deltas: Deltas) -> tuple[str, list[Instruction]]:
    """The buffer of the result, and the instructions from hidden states to it."""
    if result is Result.NORMED:
        return _states(decoder, deltas)
    source, head = _input(decoder.norm, STREAM)
    if result is Result.SCORES:
        ranking = decoder.ranking
        assert ranking is not None, "the model has no head that scores"
        if ranking.dense is not None:
            head.append(_products(source, ((ranking.dense, DENSE),), deltas))
            head.append(program.Softcap(DENSE, 1.0))  # tanh
            source = DENSE
        head.append(_products(source, ((ranking.output, SCORES),), deltas))
        return SCORES, head
    head.append(_products(source, ((decoder.head, LOGITS),), deltas))
    if decoder.logit_cap:
        head.append(program.Softcap(LOGITS, decoder.logit_cap))
    return LOGITS, head


def _states(decoder: Decoder, deltas: Deltas) -> tuple[str, list[Instruction]]:
    """The buffer of the states that embeddings are made of, and the instructions that fill it.

    Layers after pooling, which have no activation, are applied before it: the mean is the same.
    """
    names = [DENSE if at else STATES for at in reversed(range(len(decoder.dense)))]
    source, head = STREAM, list[Instruction]()
    if decoder.norm is not None:
        source = NORMED if names else STATES
        head.append(_norm(decoder.norm, STREAM, source))
    for layer, out in zip(decoder.dense, names, strict=True):
        head.append(_products(source, ((layer, out),), deltas))
        source = out
    return source, head


def _transfer(before: Backend, backend: Backend) -> list[Instruction]:
    """The transfer of the residual stream between two parts of a model, if there is one."""
    return [] if before is backend else [program.Transfer(STREAM, backend.name)]


def _block(block: Block, layer: int, deltas: Deltas) -> list[Instruction]:
    """The instructions of a block; `layer` is the index of its first state in the KVLayout."""
    source, before = _input(block.attention_norm, STREAM)
    attended = _mixer(block.attention, layer, source, deltas)
    source, between = _input(block.mlp_norm, source)  # without a norm: the input of attention
    return [
        *before,
        *attended,
        *_added(block.after_attention, block.residual_scale),
        *_summed(block.attention_sum_norm),
        *between,
        *_mlp(block.mlp, source, deltas),
        *_added(block.after_mlp, block.residual_scale),
        *_summed(block.mlp_sum_norm),
    ]


def _input(norm: Norm | None, otherwise: str) -> tuple[str, list[Instruction]]:
    """The input buffer of attention or MLP, and the norm that fills it, if there is one."""
    return (otherwise, []) if norm is None else (NORMED, [_norm(norm, STREAM, NORMED)])


def _mixer(mixer: Mixer, layer: int, source: str, deltas: Deltas) -> list[Instruction]:
    """Attention, or what takes its place: from `source` to CHANGE."""
    match mixer:
        case Attention():
            return _attention(mixer, layer, source, deltas)
        case ShortConvolution():
            return _short_convolution(mixer, layer, source, deltas)
        case DeltaNet():
            return _delta_net(mixer, layer, source, deltas)


def _attention(attention: Attention, layer: int, source: str, deltas: Deltas) -> list[Instruction]:
    heads = [(attention.query, QUERY)]
    if attention.key is not None and attention.value is not None:
        heads += [(attention.key, KEY), (attention.value, VALUE)]
    own = len(heads) > 1  # keys and values
    query_norm, key_norm = attention.query_norm, attention.key_norm
    norms: list[Instruction] = []  # those that are not a part of the attention
    if isinstance(query_norm, HeadNorms) or isinstance(key_norm, HeadNorms):
        for norm, heads_of in ((query_norm, QUERY), (key_norm, KEY))[: 1 + own]:
            assert isinstance(norm, HeadNorms)
            norms.append(program.HeadNorm(heads_of, norm.weight, norm.epsilon))
        query_norm = key_norm = None
    elif query_norm is not None and attention.norms_whole:
        norms.append(_norm(query_norm, QUERY, QUERY))
        if key_norm is not None:
            norms.append(_norm(key_norm, KEY, KEY))
        query_norm = key_norm = None
    return [
        _products(source, tuple(heads), deltas),
        *norms,
        program.Attend(
            q=QUERY,
            k=KEY if own else "",
            v=VALUE if own else "",
            out=MIXED,
            layer=layer,
            head_width=attention.head_width,
            query_norm=None if query_norm is None else query_norm.weight,
            key_norm=None if key_norm is None else key_norm.weight,
            epsilon=0.0 if query_norm is None else query_norm.epsilon,
            frequencies=attention.rope.frequencies,
            interleaved=attention.rope.interleaved,
            rope_scale=attention.rope.scale,
            scale=attention.scale,
            window=attention.window,
            cap=attention.cap,
            causal=attention.causal,
        ),
        _products(MIXED, ((attention.output, CHANGE),), deltas),
    ]


def _short_convolution(
    mixer: ShortConvolution, layer: int, source: str, deltas: Deltas
) -> list[Instruction]:
    inputs = ((mixer.before, BEFORE), (mixer.after, AFTER), (mixer.value, CONVOLVED))
    return [
        _products(source, inputs, deltas),
        program.Multiply(CONVOLVED, BEFORE),
        _convolution(mixer.convolution, CONVOLVED, layer),
        program.Multiply(CONVOLVED, AFTER),
        _products(CONVOLVED, ((mixer.output, CHANGE),), deltas),
    ]


def _delta_net(mixer: DeltaNet, layer: int, source: str, deltas: Deltas) -> list[Instruction]:
    heads = (LINEAR_QUERY, LINEAR_KEY, LINEAR_VALUE)
    outs = (*heads, DECAY, STRENGTH, OUTPUT_GATE)
    inputs = (mixer.query, mixer.key, mixer.value, mixer.decay, mixer.strength, mixer.gate)
    return [
        _products(source, tuple(zip(inputs, outs, strict=True)), deltas),
        *(
            _convolution(convolution, name, layer + at)
            for at, (convolution, name) in enumerate(zip(mixer.convolutions, heads, strict=True))
        ),
        program.Recurrence(
            *(*heads, DECAY, STRENGTH, RECURRENT),
            layer=layer + len(heads),
            rate=mixer.rate,
            decay_bias=mixer.decay_bias,
            scale=mixer.key_width**-0.5,
            epsilon=mixer.epsilon,
            corrected=mixer.corrected,
        ),
        _norm(mixer.norm, RECURRENT, RECURRENT),
        program.Gate(OUTPUT_GATE, RECURRENT, mixer.activation, OUTPUT_GATE),
        _products(OUTPUT_GATE, ((mixer.output, CHANGE),), deltas),
    ]


def _convolution(convolution: Convolution, x: str, layer: int) -> program.ShortConv:
    return program.ShortConv(x, convolution.weight, layer, convolution.bias, convolution.activation)


def _mlp(mlp: GatedMLP | MLP | Experts, source: str, deltas: Deltas) -> list[Instruction]:
    if isinstance(mlp, Experts):
        return [_products(source, ((mlp.router, ROUTES),), deltas), _experts(mlp, source)]
    if isinstance(mlp, MLP):
        up: tuple[tuple[Projection, str], ...] = ((mlp.up, GATE),)
    else:
        up = ((mlp.gate, GATE), (mlp.up, UP))
    return [
        _products(source, up, deltas),
        program.Gate(GATE, UP if len(up) > 1 else "", mlp.activation, GATE),
        _products(GATE, ((mlp.down, CHANGE),), deltas),
    ]


def _experts(mlp: Experts, source: str) -> program.Experts:
    """The experts without their router; adapters do not apply to them."""
    return program.Experts(
        x=source,
        scores=ROUTES,
        gates=tuple(expert.gate.weight for expert in mlp.experts),
        ups=tuple(expert.up.weight for expert in mlp.experts),
        downs=tuple(expert.down.weight for expert in mlp.experts),
        chosen=mlp.chosen,
        activation=mlp.experts[0].activation,
        out=CHANGE,
    )


def _added(norm: Norm | None, scale: float) -> list[Instruction]:
    """Add the output of attention or MLP to the residual stream, after its norm if there is one."""
    add = program.Add(STREAM, CHANGE, scale)
    return [add] if norm is None else [_norm(norm, CHANGE, CHANGE), add]


def _summed(norm: Norm | None) -> list[Instruction]:
    """The norm of the residual stream after a sum, if there is one."""
    return [] if norm is None else [_norm(norm, STREAM, STREAM)]


def _norm(norm: Norm, x: str, out: str) -> program.Norm:
    return program.Norm(x, norm.weight, norm.epsilon, out, norm.centred, norm.bias)


def _products(
    x: str, products: tuple[tuple[Projection, str], ...], deltas: Deltas
) -> program.Linear:
    changes = tuple(deltas(one.name, one.part) for one, _ in products)
    biases = tuple(one.bias for one, _ in products)
    return program.Linear(
        x,
        weights=tuple(projection.weight for projection, _ in products),
        outs=tuple(out for _, out in products),
        changes=changes if any(changes) else (),
        biases=biases if any(bias is not None for bias in biases) else (),
    )


def _delta(backend: Backend, stack: Stack, name: str, part: Part | None = None) -> LoraDelta | None:
    """The stack's delta of a tensor, repacked for the backend like the model's weights."""
    delta = stack.delta_for(name, part)
    if delta is None:
        return None
    down, up = backend.prepare(delta.down), backend.prepare(delta.up)
    return LoraDelta(down, up, delta.scales.to(backend.device))


def _widths(instructions: tuple[Instruction, ...]) -> dict[str, int]:
    """Columns of every buffer; the same in all layers."""
    widths: dict[str, int] = {}

    def note(name: str, width: int) -> None:
        assert widths.setdefault(name, width) == width, f"{name}: {widths[name]} and {width}"

    for one in instructions:
        match one:
            case program.Embed():
                note(one.out, one.table.columns)
            case program.Norm():
                note(one.out, one.weight.shape[0])
            case program.Linear():
                for out, weight in zip(one.outs, one.weights, strict=True):
                    note(out, weight.shape[0])
            case program.Attend():
                note(one.out, widths[one.q])
            case program.Recurrence():
                note(one.out, widths[one.v])
            case program.Gate():
                note(one.out, widths[one.gate])
            case program.Experts():
                note(one.out, one.downs[0].shape[0])
            case program.Add() | program.Multiply() | program.ShortConv():
                pass  # in place
            case program.Softcap() | program.HeadNorm() | program.Transfer():
                pass  # in place
            case program.Fetch():
                pass
    return widths
