"""gemma4v: Gemma 4: RMS norms before and after, norms of queries, keys and values, gated MLPs.

Learned positions of columns and of rows are added, and RoPE turns half of a head by each. The
squares of patches are averaged, scaled and normed; the largest models standardize them before. The
smallest models cut what products read and make to ranges. GELU is the tanh approximation, whatever
the file says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.gguf.values import DAMAGED
from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.layers import Block
from engine.models.parts import HeadNorms, Norm, Projection
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.patches import Grid, coordinates, square_means, summed_positions
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import (
    PATCHES,
    Blocks,
    added_positions,
    axial_rope,
    instructions_of,
    no_deltas,
    patch_embedding,
    program,
    tower_attention,
    tower_mlp,
    tower_norm,
)
from kernels import ops
from kernels.ops import Activation, Instruction
from kernels.programs.program import Program

_ROPE_BASE = 100.0
_BESIDE = "mm.input_projection"  # the tensor on whose device the means are normed


class _Range(NamedTuple):
    """What the values of a buffer are cut to."""

    least: float
    most: float


_ENDS = ("min", -math.inf), ("max", math.inf)
_UNCUT = _Range(-math.inf, math.inf)
_Ranges = dict[int, tuple[_Range, _Range]]  # by id of a weight: of its input, of its output


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D = config.width
    body = [*patch_embedding(weights, config), added_positions(config)]
    for index in range(config.layers):
        body += _block(weights, config, index)
    standard = None
    if weights.has("v.std_bias") and weights.has("v.std_scale"):
        standard = weights.vector("v.std_bias", D), weights.vector("v.std_scale", D)
    return Wiring(
        config,
        program(body, STREAM, {PATCHES: config.pixels}),
        normed_projector(weights, config),
        merged=partial(_merged, side=config.merge, standard=standard),
        positions=partial(summed_positions, weights.tables("v.position_embd.weight", 2, D).cpu()),
        axes=_columns_first,
        is_unsigned=True,
    )


def normed_projector(weights: Weights, config: VisionConfig) -> Program:
    """The projector of Gemma 4: an RMS norm without factors, and a matrix."""
    rows = projection(weights, _BESIDE, config.output, config.width)
    body = [
        ops.GivenRows("given"),
        norm(
            Norm(weights.beside(_BESIDE, torch.ones(config.width)), config.epsilon),
            "given",
            "given",
        ),
        products("given", ((rows, "rows"),), no_deltas),
    ]
    return program(body, "rows", {"given": config.width})


def _block(weights: Weights, config: VisionConfig, index: int) -> list[Instruction]:
    """A block with norms around attention and MLP.

    In the file RoPE turns the two halves of a head one after the other: their pairs are brought
    together by the order of the rows of queries and keys.
    """
    name = f"v.blk.{index}"
    D, C = config.width, config.head_width
    how = Blocks(Activation.GELU_TANH, False, axial_rope(config, _ROPE_BASE), gated=True, scale=1.0)
    parts = ("ln1", "attn_post_norm", "ln2", "ffn_post_norm")
    first, after_attention, second, after_mlp = (
        tower_norm(weights, config, f"{name}.{part}", D, centred=False) for part in parts
    )
    in_head = torch.arange(C).view(2, 2, C // 4).transpose(0, 1).flatten()
    order = (C * torch.arange(config.heads)[:, None] + in_head).flatten()
    query, key = (
        Projection(f"{name}.{part}.weight", weights.ordered(f"{name}.{part}.weight", order, D))
        for part in ("attn_q", "attn_k")
    )
    order_in_head = weights.beside(name, in_head)
    query_norm, key_norm = (
        Norm(weights.vector(f"{name}.{part}.weight", C)[order_in_head].contiguous(), config.epsilon)
        for part in ("attn_q_norm", "attn_k_norm")
    )
    ones = weights.beside(name, torch.ones(config.heads, C))
    attention = replace(
        tower_attention(weights, config, name, how, query, key),
        query_norm=query_norm,
        key_norm=key_norm,
        value_norm=HeadNorms(ones, config.epsilon, centred=False),
    )
    mlp = tower_mlp(weights, config, index, how)
    block = Block(first, attention, second, mlp, after_attention, after_mlp)
    ranges = _ranges(weights, (*attention.projections, *mlp.projections))
    return _clipped(instructions_of(block), ranges)


def _columns_first(grid: Grid) -> Tensor:
    return coordinates(grid).flip(1)


def _merged(rows: Tensor, grid: Grid, side: int, standard: tuple[Tensor, Tensor] | None) -> Tensor:
    """The mean of each square, scaled, and perhaps standardized by a bias and a factor."""
    means = square_means(rows, grid, side) * rows.shape[1] ** 0.5
    return means if standard is None else (means - standard[0]) * standard[1]


def _ranges(weights: Weights, some: Iterable[Projection]) -> _Ranges:
    """The ranges of products; without those that cut nothing."""
    found: _Ranges = {}
    for one in some:
        name = one.name.removesuffix(".weight")
        before, after = (
            _Range(*(weights.scalar(f"{name}.{end}_{part}", limit) for part, limit in _ENDS))
            for end in ("input", "output")
        )
        if not (before.least <= before.most and after.least <= after.most):
            raise ModelFileError(f"The ranges of the tensor '{one.name}' are empty.", DAMAGED)
        if (before, after) != (_UNCUT, _UNCUT):
            found[id(one.weight)] = before, after
    return found


def _clipped(body: Iterable[Instruction], ranges: _Ranges) -> list[Instruction]:
    """Instructions whose products read copies that are cut, and whose results are cut."""
    made: list[Instruction] = []
    for one in body:
        if not isinstance(one, ops.Linear) or ranges.keys().isdisjoint(map(id, one.weights)):
            made.append(one)
            continue
        for at, (weight, out) in enumerate(zip(one.weights, one.outs, strict=True)):
            before, after = ranges.get(id(weight), (_UNCUT, _UNCUT))
            copy, this = f"clipped {weight.columns}", slice(at, at + 1)
            product = replace(
                one,
                x=copy,
                weights=(weight,),
                outs=(out,),
                biases=one.biases[this],
                scales=one.scales[this],
                rotations=one.rotations[this],
            )
            made += [ops.Columns(one.x, 0, weight.columns, copy), ops.Clip(copy, *before)]
            made += [product, ops.Clip(out, *after)]
    return made
