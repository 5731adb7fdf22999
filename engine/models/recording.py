"""Compiles a decoder and its LoRA stack to a `Program`: instructions over named buffers.

This duplicates the op-by-op computation of `Decoder` and its blocks, so that a backend can run a
whole token in one call. Tests check for every architecture that both give the same bits.
"""

from __future__ import annotations

from engine.lora.stack import EMBEDDING, NO_ADAPTERS, Stack
from engine.messages import SlowPart, SlowReason
from engine.models.layers import (
    MLP,
    Attention,
    Block,
    Decoder,
    Experts,
    GatedMLP,
    HeadNorms,
    Norm,
    Projection,
)
from kernels import program
from kernels.program import Instruction, Program

# Buffer names. CHANGE holds an output of attention or MLP before it is added to the stream.
STREAM, NORMED, CHANGE, LOGITS = "stream", "normed", "change", "logits"
QUERY, KEY, VALUE, MIXED = "query", "key", "value", "mixed"
GATE, UP = "gate", "up"


def record(decoder: Decoder, stack: Stack = NO_ADAPTERS) -> Program | None:
    """The program of `decoder.hidden` and `decoder.logits` under `stack`.

    None if a part of the model has no instruction, or if a kernel failed the check at load: a
    recorded program runs the same kernels.
    """
    if obstacles(decoder) or decoder.refused:
        return None
    embed = program.Embed(
        decoder.embedding,
        STREAM,
        decoder.embedding_scale,
        stack.delta_for(EMBEDDING),
        decoder.positions,
    )
    body: list[Instruction] = [embed]
    layers: list[int] = []
    for layer, block in enumerate(decoder.blocks):
        layers.append(len(body))
        body += _block(block, layer, stack)
    head = [
        _norm(decoder.norm, STREAM, NORMED),
        _products(NORMED, ((decoder.head, LOGITS),), stack),
    ]
    if decoder.logit_cap:
        head.append(program.Softcap(LOGITS, decoder.logit_cap))
    return Program(
        body=tuple(body),
        layers=tuple(layers),
        head=tuple(head),
        hidden=STREAM,
        logits=LOGITS,
        widths=_widths((*body, *head)),
    )


def obstacles(decoder: Decoder) -> tuple[SlowPart, ...]:
    """Parts of a model that have no instruction and so force it to run op by op.

    A program is the same list for every token, but experts are selected per token.
    """
    found: list[SlowPart] = []
    if any(isinstance(block.mlp, Experts) for block in decoder.blocks):
        found.append(SlowPart(SlowReason.EXPERTS, "experts"))
    if any(isinstance(block.attention.query_norm, HeadNorms) for block in decoder.blocks):
        found.append(SlowPart(SlowReason.HEAD_NORMS, "attn_q_norm"))
    return tuple(found)


def adapter_obstacles(stack: Stack) -> tuple[SlowPart, ...]:
    """Adapter deltas that have no instruction yet: those of the embedding."""
    if stack.delta_for(EMBEDDING) is None:
        return ()
    return (SlowPart(SlowReason.ADAPTED_EMBEDDING, EMBEDDING),)


def _block(block: Block, layer: int, stack: Stack) -> list[Instruction]:
    source, before = _input(block.attention_norm, STREAM)
    attended = _attention(block.attention, layer, source, stack)
    source, between = _input(block.mlp_norm, source)  # without a norm: the input of attention
    return [
        *before,
        *attended,
        *_added(block.after_attention, block.residual_scale),
        *between,
        *_mlp(block.mlp, source, stack),
        *_added(block.after_mlp, block.residual_scale),
    ]


def _input(norm: Norm | None, otherwise: str) -> tuple[str, list[Instruction]]:
    """The input buffer of attention or MLP, and the norm that fills it, if there is one."""
    return (otherwise, []) if norm is None else (NORMED, [_norm(norm, STREAM, NORMED)])


def _attention(attention: Attention, layer: int, source: str, stack: Stack) -> list[Instruction]:
    heads = ((attention.query, QUERY), (attention.key, KEY), (attention.value, VALUE))
    query_norm, key_norm = attention.query_norm, attention.key_norm
    assert not isinstance(query_norm, HeadNorms)
    assert not isinstance(key_norm, HeadNorms)
    whole_norms: list[Instruction] = []
    if query_norm is not None and key_norm is not None and attention.norms_whole:
        whole_norms = [_norm(query_norm, QUERY, QUERY), _norm(key_norm, KEY, KEY)]
        query_norm = key_norm = None
    return [
        _products(source, heads, stack),
        *whole_norms,
        program.Attend(
            q=QUERY,
            k=KEY,
            v=VALUE,
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
        ),
        _products(MIXED, ((attention.output, CHANGE),), stack),
    ]


def _mlp(mlp: GatedMLP | MLP | Experts, source: str, stack: Stack) -> list[Instruction]:
    assert not isinstance(mlp, Experts)
    if isinstance(mlp, MLP):
        up: tuple[tuple[Projection, str], ...] = ((mlp.up, GATE),)
    else:
        up = ((mlp.gate, GATE), (mlp.up, UP))
    return [
        _products(source, up, stack),
        program.Gate(GATE, UP if len(up) > 1 else "", mlp.activation, GATE),
        _products(GATE, ((mlp.down, CHANGE),), stack),
    ]


def _added(norm: Norm | None, scale: float) -> list[Instruction]:
    """Add the output of attention or MLP to the residual stream, after its norm if there is one."""
    add = program.Add(STREAM, CHANGE, scale)
    return [add] if norm is None else [_norm(norm, CHANGE, CHANGE), add]


def _norm(norm: Norm, x: str, out: str) -> program.Norm:
    return program.Norm(x, norm.weight, norm.epsilon, out, norm.centred, norm.bias)


def _products(x: str, products: tuple[tuple[Projection, str], ...], stack: Stack) -> program.Linear:
    changes = tuple(stack.delta_for(one.name, one.part) for one, _ in products)
    biases = tuple(one.bias for one, _ in products)
    return program.Linear(
        x,
        weights=tuple(projection.weight for projection, _ in products),
        outs=tuple(out for _, out in products),
        changes=changes if any(changes) else (),
        biases=biases if any(bias is not None for bias in biases) else (),
    )


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
            case program.Gate():
                note(one.out, widths[one.gate])
            case program.Add() | program.Softcap():
                pass  # in place
    return widths
