"""Forward pass: a decoder and its LoRA stack as a `Program`, instructions over named buffers.

The one definition of what a model computes. `kernels.programs.interpreter` runs it op by op in torch; a
backend lowers it, to run a whole token in one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from functools import partial

from engine.adapters.delta import Part
from engine.adapters.stack import EMBEDDING, NO_ADAPTERS, Stack
from engine.models.expert_streamer import ExpertStreamer
from engine.models.forward_altup import (
    corrected,
    divided,
    layer_input,
    layer_inputs,
    predicted,
    side_path,
    united,
)
from engine.models.forward_mixers import mixer
from engine.models.forward_mlp import feed_forward
from engine.models.forward_parts import NORMED, STREAM, SUBLAYER_OUT, Deltas, norm, products
from engine.models.layer_streamer import LayerStreamer
from engine.models.layers import Block, Decoder
from engine.models.parts import Norm
from engine.models.seeing import Seeing
from kernels import ops
from kernels.backend.backend import Backend
from kernels.ops import Instruction, LoraDelta
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout

# Buffer names of results, which no body may use: they belong to the caller.
LOGITS, STATES, SCORES = "logits", "states", "scores"
DENSE = "dense"


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
    seeing: Seeing | None = None,
) -> Program:
    """The program of a decoder over KV pages, whose products have the LoRA terms of `stack`.

    An empty stack changes no bit of the result. What `Program.logits` names is the `result`. With
    `seeing` it reads images besides; the bits of a text alone are the same.
    """
    placement = decoder.placement
    embed = ops.Embed(
        decoder.embedding,
        STREAM,
        decoder.embedding_scale,
        found[0] if (found := _deltas(placement.embedding, stack, EMBEDDING)) else None,
        decoder.positions,
        decoder.types,
        decoder.separator,
        decoder.embedding_rotation,
    )
    streamer = decoder.streamer
    offloaded = [number for number in decoder.offloaded if number >= 0]
    body: list[Instruction] = [embed, *(seeing.after_embedding() if seeing else ())]
    if decoder.embedding_norm is not None:
        body.append(norm(decoder.embedding_norm, STREAM, STREAM))
    if decoder.layer_inputs is not None:
        body += layer_inputs(decoder.layer_inputs, partial(_deltas, placement.embedding, stack))
    if decoder.altup is not None:
        body += divided(decoder.altup, partial(_deltas, placement.embedding, stack))
    layers: list[int] = []
    first = decoder.first_states
    before = placement.embedding
    for layer, (block, backend) in enumerate(zip(decoder.blocks, placement.layers, strict=True)):
        body += _transfer(before, backend)
        layers.append(len(body))
        if isinstance(streamer, LayerStreamer) and (number := decoder.offloaded[layer]) >= 0:
            at = offloaded.index(number)
            upcoming = (*offloaded[at + 1 :], *offloaded[:at])
            body.append(ops.StreamWeights(streamer, number, upcoming))
        made = block_instructions(block, first[layer], partial(_deltas, backend, stack))
        if isinstance(streamer, ExpertStreamer) and (number := decoder.offloaded[layer]) >= 0:
            made = [_offloaded(one, streamer, number) for one in made]
        body += made if seeing is None else seeing.layer(layer, made)
        if block.output_scale != 1.0:
            body.append(ops.Scale(STREAM, block.output_scale))
        before = backend
    if decoder.altup is not None:
        body += united(decoder.altup, partial(_deltas, before, stack))
    if isinstance(streamer, LayerStreamer) and offloaded:
        body.append(ops.StreamWeights(streamer, -1, tuple(offloaded)))
    result_name, head = _head(decoder, result, partial(_deltas, placement.head, stack))
    head = [*_transfer(before, placement.head), *head]
    return Program(
        body=tuple(body),
        layers=tuple(layers),
        head=tuple(head),
        hidden=STREAM,
        logits=result_name,
        widths=widths_of((*body, *head)),
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
            head.append(products(source, ((ranking.dense, DENSE),), deltas))
            head.append(ops.Softcap(DENSE, 1.0))  # tanh
            source = DENSE
        head.append(products(source, ((ranking.output, SCORES),), deltas))
        return SCORES, head
    head.append(products(source, ((decoder.head, LOGITS),), deltas))
    if decoder.logit_cap:
        head.append(ops.Softcap(LOGITS, decoder.logit_cap))
    return LOGITS, head


def _states(decoder: Decoder, deltas: Deltas) -> tuple[str, list[Instruction]]:
    """The buffer of the states that embeddings are made of, and the instructions that fill it.

    Layers after pooling, which have no activation, are applied before it: the mean is the same.
    """
    names = [DENSE if at else STATES for at in reversed(range(len(decoder.dense)))]
    source, head = STREAM, list[Instruction]()
    if decoder.norm is not None:
        source = NORMED if names else STATES
        head.append(norm(decoder.norm, STREAM, source))
    for layer, out in zip(decoder.dense, names, strict=True):
        head.append(products(source, ((layer, out),), deltas))
        source = out
    return source, head


def _transfer(before: Backend, backend: Backend) -> list[Instruction]:
    """The transfer of the residual stream between two parts of a model, if there is one."""
    return [] if before is backend else [ops.Transfer(STREAM, backend.name)]


def block_instructions(block: Block, layer: int, deltas: Deltas) -> list[Instruction]:
    """The instructions of a block; `layer` is the index of its first state in the KVLayout."""
    made: list[Instruction] = []
    source = STREAM
    if block.altup is not None:
        made += predicted(block.altup, deltas)
    if block.attention is not None:
        source, before = _input(block.attention_norm, STREAM)
        made += before
        made += mixer(block.attention, layer, source, SUBLAYER_OUT, deltas)
        made += _added(block.after_attention, block.residual_scale)
        made += _summed(block.attention_sum_norm)
    if block.altup is not None:
        made += side_path(block.altup, deltas)
    if block.mlp is not None:
        source, between = _input(block.mlp_norm, source)  # without a norm: that of attention
        made += between
        made += feed_forward(block.mlp, STREAM, source, SUBLAYER_OUT, deltas)
        made += _added(block.after_mlp, block.residual_scale)
        made += _summed(block.mlp_sum_norm)
    if block.altup is not None:
        made += corrected(block.altup, block.layer_input, deltas)
    elif block.layer_input is not None:
        made += [*layer_input(block.layer_input, deltas), ops.Add(STREAM, SUBLAYER_OUT)]
    return made


def _offloaded(one: Instruction, streamer: ExpertStreamer, number: int) -> Instruction:
    """An instruction of a layer whose experts are read from the file."""
    if isinstance(one, ops.Experts):
        return replace(one, streamer=streamer, offloaded_layer=number)
    return one


def _input(one: Norm | None, otherwise: str) -> tuple[str, list[Instruction]]:
    """The input buffer of attention or MLP, and the norm that fills it, if there is one."""
    return (otherwise, []) if one is None else (NORMED, [norm(one, STREAM, NORMED)])


def _added(one: Norm | None, scale: float) -> list[Instruction]:
    """Add the output of attention or MLP to the residual stream, after its norm if there is one."""
    add = ops.Add(STREAM, SUBLAYER_OUT, scale)
    return [add] if one is None else [norm(one, SUBLAYER_OUT, SUBLAYER_OUT), add]


def _summed(one: Norm | None) -> list[Instruction]:
    """The norm of the residual stream after a sum, if there is one."""
    return [] if one is None else [norm(one, STREAM, STREAM)]


def _deltas(
    backend: Backend, stack: Stack, name: str, part: Part | None = None
) -> tuple[LoraDelta, ...]:
    """The stack's deltas of a tensor, repacked for the backend like the model's weights."""
    return tuple(
        LoraDelta(
            backend.prepare(delta.down),
            backend.prepare(delta.up),
            delta.scales.to(backend.device),
        )
        for delta in stack.deltas_for(name, part)
    )


def widths_of(
    instructions: tuple[Instruction, ...], given: Mapping[str, int] = {}
) -> dict[str, int]:
    """Columns of every buffer, the same in all layers; `given`: of those that given rows begin."""
    widths = dict(given)

    def note(name: str, width: int) -> None:
        assert widths.setdefault(name, width) == width, f"{name}: {widths[name]} and {width}"

    for one in instructions:
        match one:
            case ops.Embed():
                note(one.out, one.table.columns)
            case ops.Norm():
                note(one.out, one.weight.shape[0])
            case ops.Linear():
                for out, weight in zip(one.outs, one.weights, strict=True):
                    note(out, weight.shape[0])
            case ops.HeadLinear():
                note(one.out, sum(weight.shape[0] for weight in one.weights))
            case ops.Join():
                note(one.out, sum(widths[x] for x in one.xs))
            case ops.Columns():
                note(one.out, one.width)
            case ops.Attend():
                note(one.out, widths[one.q])
            case ops.Recurrence():
                note(one.out, widths[one.v])
            case ops.Gate():
                note(one.out, widths[one.gate])
            case ops.Experts():
                note(one.out, one.downs[0].shape[0])
            case ops.StreamWeights() | ops.Transfer():
                pass
            case _:
                pass  # in place
    return widths
