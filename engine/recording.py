"""A decoder and the adapters in use as a program: every layer as instructions over named buffers.

What `Decoder` and its blocks compute op by op is said here once more, for a backend to carry out in
one go. The two must agree to the bit, which the tests hold them to for every architecture.
"""

from __future__ import annotations

from engine.lora import EMBEDDING, NO_ADAPTERS, Stack
from engine.models.layers import Attention, Block, Decoder, GatedMLP, Norm, Projection
from kernels import program
from kernels.program import Instruction, Program

# The buffers. What a layer adds to the stream passes through CHANGE.
STREAM, NORMED, CHANGE, LOGITS = "stream", "normed", "change", "logits"
QUERY, KEY, VALUE, MIXED = "query", "key", "value", "mixed"
GATE, UP = "gate", "up"


def record(decoder: Decoder, stack: Stack = NO_ADAPTERS) -> Program:
    """What `decoder.hidden` and `decoder.logits` compute under `stack`."""
    body: list[Instruction] = [
        program.Embed(
            decoder.embedding, STREAM, decoder.embedding_scale, stack.change_of(EMBEDDING)
        )
    ]
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


def _block(block: Block, layer: int, stack: Stack) -> list[Instruction]:
    attended = _attention(block.attention, layer, stack)
    return [
        _norm(block.attention_norm, STREAM, NORMED),
        *attended,
        *_added(block.after_attention),
        _norm(block.mlp_norm, STREAM, NORMED),
        *_mlp(block.mlp, stack),
        *_added(block.after_mlp),
    ]


def _attention(attention: Attention, layer: int, stack: Stack) -> list[Instruction]:
    heads = ((attention.query, QUERY), (attention.key, KEY), (attention.value, VALUE))
    norms = (attention.query_norm, attention.key_norm)
    query_norm, key_norm = norms if all(norms) else (None, None)
    return [
        _products(NORMED, heads, stack),
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
            rope_scale=1.0,
            scale=attention.scale,
            window=attention.window,
        ),
        _products(MIXED, ((attention.output, CHANGE),), stack),
    ]


def _mlp(mlp: GatedMLP, stack: Stack) -> list[Instruction]:
    return [
        _products(NORMED, ((mlp.gate, GATE), (mlp.up, UP)), stack),
        program.Gate(GATE, UP, mlp.activation, GATE),
        _products(GATE, ((mlp.down, CHANGE),), stack),
    ]


def _added(norm: Norm | None) -> list[Instruction]:
    """What a part of a layer has computed joins the stream, normed where the model says so."""
    add = program.Add(STREAM, CHANGE)
    return [add] if norm is None else [_norm(norm, CHANGE, CHANGE), add]


def _norm(norm: Norm, x: str, out: str) -> program.Norm:
    return program.Norm(x, norm.weight, norm.epsilon, out)


def _products(x: str, products: tuple[tuple[Projection, str], ...], stack: Stack) -> program.Linear:
    changes = tuple(stack.change_of(projection.name) for projection, _ in products)
    return program.Linear(
        x,
        weights=tuple(projection.weight for projection, _ in products),
        outs=tuple(out for _, out in products),
        changes=changes if any(changes) else (),
    )


def _widths(instructions: tuple[Instruction, ...]) -> dict[str, int]:
    """Columns of every buffer, which are the same in all layers."""
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
                pass  # these write where they read
    return widths
