"""gemma4v: Gemma 4: RMS norms before and after, norms of queries, keys and values, gated MLPs.

Learned positions of columns and of rows are added, and RoPE turns half of a head by each. The
squares of patches are averaged, scaled and normed. GELU is the tanh approximation, whatever the
file says.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.layers import Block
from engine.models.parts import Norm, Projection
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.patches import Grid, coordinates, square_means
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import (
    PATCHES,
    Blocks,
    added_positions,
    axial_rope,
    head_norms,
    instructions_of,
    no_deltas,
    patch_embedding,
    program,
    tower_attention,
    tower_mlp,
    tower_norm,
)
from kernels import ops
from kernels.ops import Activation

_ROPE_BASE = 100.0
_MERGE = 3  # patches of a side


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D = config.width
    body = [*patch_embedding(weights, config), added_positions(config)]
    for index in range(config.layers):
        body += instructions_of(_block(weights, config, index))
    rows = projection(weights, "mm.input_projection", config.output, D)
    projector = [
        ops.GivenRows("means"),
        norm(Norm(torch.ones(D), config.epsilon), "means", "means"),
        products("means", ((rows, "rows"),), no_deltas),
    ]
    rows_of_both = weights.rows("v.position_embd.weight")
    table = weights.flat_table("v.position_embd.weight", rows_of_both, D).view(2, -1, D)
    return Wiring(
        config,
        program(body, STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"means": D}),
        merged=partial(_merged, width=D),
        positions=partial(_positions, table),
        axes=_columns_first,
        is_unsigned=True,
    )


def _block(weights: Weights, config: VisionConfig, index: int) -> Block:
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
    query_norm, key_norm = (
        Norm(weights.vector(f"{name}.{part}.weight", C)[in_head].contiguous(), config.epsilon)
        for part in ("attn_q_norm", "attn_k_norm")
    )
    attention = replace(
        tower_attention(weights, config, index, how, query, key),
        query_norm=query_norm,
        key_norm=key_norm,
        value_norm=head_norms(weights, "", config),
    )
    mlp = tower_mlp(weights, config, index, how)
    return Block(first, attention, second, mlp, after_attention, after_mlp)


def _positions(table: Tensor, grid: Grid) -> Tensor:
    """The sum of the learned positions of column and row of every patch: [T, D]."""
    if max(grid) > table.shape[1]:
        raise ValueError(f"a picture of {grid.rows} x {grid.columns} patches is too large")
    rows, columns = coordinates(grid).unbind(1)
    return table[0][columns] + table[1][rows]


def _columns_first(grid: Grid) -> Tensor:
    return coordinates(grid).flip(1)


def _merged(rows: Tensor, grid: Grid, width: int) -> Tensor:
    return square_means(rows, grid, _MERGE) * width**0.5
