"""Parts that picture encoders share: blocks of their towers, norms, and programs of instructions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.gguf.values import DAMAGED
from engine.models.builder import projection, projections
from engine.models.feed_forward import MLP, FeedForward, GatedMLP
from engine.models.forward import block_instructions, widths_of
from engine.models.forward_parts import STREAM, SUBLAYER_OUT, products
from engine.models.layers import Block
from engine.models.mixers import Attention
from engine.models.parts import Norm, Projection, Rope
from engine.models.rope import no_rope, rope_frequencies
from engine.models.weights import Weights
from engine.vision.projector_file import VisionConfig
from kernels import ops
from kernels.ops import Activation, Instruction, LoraDelta
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

PATCHES = "patches"  # the buffer of the pixels of patches


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the blocks of a tower have in common."""

    activation: Activation
    centred: bool  # layer norms; else RMS norms
    rope: Rope | None = None
    gated: bool = False
    scale: float = 0.0  # of scores; 0: C^-0.5


def no_deltas(name: str, part: object = None) -> tuple[LoraDelta, ...]:
    """The LoRA deltas of an encoder's products: none."""
    del name, part
    return ()


def tower_norm(
    weights: Weights, config: VisionConfig, name: str, width: int, *, centred: bool
) -> Norm:
    """A layer norm with its bias, or an RMS norm."""
    bias = weights.vector(f"{name}.bias", width) if centred else None
    return Norm(weights.vector(f"{name}.weight", width), config.epsilon, centred, bias)


def tower_block(weights: Weights, config: VisionConfig, index: int, how: Blocks) -> Block:
    """Block `index` of a tower: norm, attention in both directions, norm, MLP."""
    name, D = f"v.blk.{index}", config.width
    first, second = (
        tower_norm(weights, config, f"{name}.{part}", D, centred=how.centred)
        for part in ("ln1", "ln2")
    )
    attention = tower_attention(weights, config, name, how)
    return Block(first, attention, second, tower_mlp(weights, config, index, how))


def tower_attention(
    weights: Weights,
    config: VisionConfig,
    name: str,
    how: Blocks,
    query: Projection | None = None,
    key: Projection | None = None,
) -> Attention:
    """The attention of a block, whose three products may be one tensor, or were made before."""
    D = config.width
    if query is None and weights.has(f"{name}.attn_qkv.weight"):
        query, key, value = projections(weights, f"{name}.attn_qkv", (D, D, D), D)
    else:
        query = query or projection(weights, f"{name}.attn_q", D, D)
        key = key or projection(weights, f"{name}.attn_k", D, D)
        value = projection(weights, f"{name}.attn_v", D, D)
    return Attention(
        query=query,
        key=key,
        value=value,
        output=projection(weights, f"{name}.attn_out", D, D),
        rope=_beside(weights, name, how.rope or no_rope()),
        head_width=config.head_width,
        scale=how.scale or config.head_width**-0.5,
        causal=False,
    )


def _beside(weights: Weights, name: str, rope: Rope) -> Rope:
    """RoPE with its frequencies on the device of a block."""
    return replace(rope, frequencies=weights.beside(name, rope.frequencies))


def tower_mlp(weights: Weights, config: VisionConfig, index: int, how: Blocks) -> FeedForward:
    """The feed-forward of a block."""
    name, D, F = f"v.blk.{index}", config.width, config.feed_forward
    names = "up", "down"
    if not how.gated and weights.rows(f"{name}.ffn_up.weight") == D != F:
        names = "down", "up"  # as early converters had it
    up, down = (
        projection(weights, f"{name}.ffn_{part}", *shape)
        for part, shape in zip(names, ((F, D), (D, F)), strict=True)
    )
    if not how.gated:
        return MLP(up, down, how.activation)
    gate = projection(weights, f"{name}.ffn_gate", F, D)
    return GatedMLP(gate, up, down, how.activation)


def axial_rope(
    config: VisionConfig, base: float, *, interleaved: bool = False, alternate: bool = False
) -> Rope:
    """RoPE of which half of the pairs turn by the row of a patch and half by its column.

    Both have the same frequencies or, if `alternate`, one those between the other's.
    """
    half = config.head_width // 2
    if alternate:
        all_of_them = rope_frequencies(base, config.head_width)
        frequencies = torch.cat((all_of_them[0::2], all_of_them[1::2]))
    else:
        frequencies = rope_frequencies(base, half).repeat(2)
    axes = torch.tensor([0, 1], dtype=torch.int32).repeat_interleave(half // 2)
    return Rope(frequencies, interleaved, axes=axes)


def patch_embedding(
    weights: Weights,
    config: VisionConfig,
    names: Sequence[str] = ("v.patch_embd.weight",),
    *,
    biased: bool = True,
) -> list[Instruction]:
    """From given rows of pixels, then of positions, to the stream; several kernels are summed.

    Without `biased` the bias is part of the positions: tokens that have no pixels have none.
    """
    D = config.width
    bias = weights.optional_vector("v.patch_embd.bias", D) if biased else None
    body: list[Instruction] = [ops.GivenRows(PATCHES)]
    for name in names:
        kernel = Projection(name, weights.flat_matrix(name, D, config.pixels), bias)
        out = STREAM if name == names[0] else SUBLAYER_OUT
        body.append(products(PATCHES, ((kernel, out),), no_deltas))
        if out == SUBLAYER_OUT:
            body.append(ops.Add(STREAM, out))
        bias = None
    return body


def square_positions(weights: Weights, width: int) -> Tensor:
    """Learned positions [side, side, D] f32, on the host; ModelFileError if they are no square."""
    name = "v.position_embd.weight"
    count = weights.rows(name)
    table = weights.table(name, count, width)
    side = math.isqrt(count)
    if side * side != count:
        raise ModelFileError(
            f"The tensor '{name}' has {count:,} positions, which are no square.", DAMAGED
        )
    return table.view(side, side, width).cpu()


def added_positions(config: VisionConfig) -> ops.GivenRows:
    """Adds the learned positions, which stand behind the pixels of the given rows."""
    return ops.GivenRows(STREAM, config.pixels, added=True)


def merging_mlp(
    weights: Weights,
    config: VisionConfig,
    names: tuple[str, str],
    source: tuple[str, int],
    out: str,
) -> list[Instruction]:
    """An MLP with an exact GELU, from a buffer and its width to a row of the text model."""
    (first, second), (x, columns) = names, source
    rows = weights.rows(f"{first}.weight")
    inner = f"inner {rows}"
    up = projection(weights, first, rows, columns)
    down = projection(weights, second, config.output, rows)
    return [
        products(x, ((up, inner),), no_deltas),
        ops.Gate(inner, "", Activation.GELU, inner),
        products(inner, ((down, out),), no_deltas),
    ]


def instructions_of(block: Block) -> list[Instruction]:
    """The instructions of a block."""
    return block_instructions(block, 0, no_deltas)


def program(body: Sequence[Instruction], out: str, given: Mapping[str, int]) -> Program:
    """A program from given rows to the buffer `out`; `given` has the widths of what they fill."""
    layers = tuple(at for at, one in enumerate(body) if isinstance(one, ops.Attend))
    widths = widths_of(tuple(body), given)
    layout = KVLayout((), torch.float32)
    sets = _alternatives(body)
    return Program(tuple(body), (0, *layers), (), out, out, widths, layout, sets, is_rare=True)


def _alternatives(body: Sequence[Instruction]) -> tuple[tuple[str, ...], ...]:
    """The buffers that only the patches, attention and the MLP of a block of a tower use."""
    attentions = [one for one in body if isinstance(one, ops.Attend)]
    gates = [one for one in body if isinstance(one, ops.Gate)] if attentions else []
    mixed = (name for one in attentions for name in (one.q, one.k, one.v, one.out))
    inner = (name for one in gates for name in (one.gate, one.up, one.out) if name)
    given = {one.x for one in body if isinstance(one, ops.GivenRows)} if attentions else set()
    patches = (PATCHES,) if PATCHES in given else ()
    found = tuple(map(dict.fromkeys, (patches, mixed, inner)))
    return tuple(tuple(some) for some in found if some)


def prepared(weights: Weights, dense: Tensor) -> Weight:
    """A matrix f32 for the backend of the encoder."""
    weight = Weight(dense.contiguous(), by_name("F32"), tuple(dense.shape))
    return weights.placement(1).head.prepare(weight)
