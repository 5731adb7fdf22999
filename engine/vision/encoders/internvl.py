"""internvl: InternVL 2.5 to 3.5: a ViT over tiles of one size, whose squares of patches are one row.

The class token that the tower has beside the patches becomes no row. Layer scale: what attention
and MLP add to the residual stream is multiplied by a factor for each channel. The largest tower has
RMS norms, and norms of queries and keys, without biases.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.gguf.values import DAMAGED
from engine.models.forward_parts import STREAM, norm
from engine.models.layers import Block
from engine.models.parts import Norm
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.patches import Grid, fixed_positions, squares
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import (
    PATCHES,
    Blocks,
    added_positions,
    instructions_of,
    merging_mlp,
    patch_embedding,
    program,
    tower_attention,
    tower_mlp,
    tower_norm,
)
from kernels import ops
from kernels.ops import Activation, Instruction

_EPSILON = 1e-5  # of the projector's norm


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    side, wide = config.image // config.patch, config.merge**2 * config.width
    if side % config.merge:
        raise ModelFileError(
            f"Tiles of {side} x {side} patches are not whole squares of {config.merge}.", DAMAGED
        )
    how = Blocks(
        Activation.SILU if config.silu else Activation.GELU,
        centred=weights.has("v.blk.0.ln1.bias"),
    )
    positions = _positions(weights, config, side)
    body = [*patch_embedding(weights, config, biased=False), added_positions(config)]
    for index in range(config.layers):
        body += _block(weights, config, index, how)
    weight, bias = (weights.vector(f"mm.model.mlp.0.{part}", wide) for part in ("weight", "bias"))
    names = "mm.model.mlp.1", "mm.model.mlp.3"
    projector: list[Instruction] = [
        ops.GivenRows("squares"),
        norm(Norm(weight, _EPSILON, True, bias), "squares", "squares"),
        *merging_mlp(weights, config, names, ("squares", wide), "rows"),
    ]
    return Wiring(
        config,
        program(body, STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"squares": wide}),
        merged=partial(_merged, side=config.merge),
        positions=partial(fixed_positions, positions, side),
    )


def _positions(weights: Weights, config: VisionConfig, side: int) -> Tensor:
    """What is added to the products of patches, then the class token itself: [side² + 1, D].

    In the file the class token's position is the first.
    """
    D = config.width
    table = weights.table("v.position_embd.weight", side * side + 1, D)
    token = weights.table("v.class_embd", 1, D)
    bias = weights.vector("v.patch_embd.bias", D)
    return torch.cat((table[1:] + bias, token + table[:1])).cpu()


def _block(weights: Weights, config: VisionConfig, index: int, how: Blocks) -> list[Instruction]:
    """A block, whose results are scaled by channel before they are added."""
    name, D = f"v.blk.{index}", config.width
    first, second = (
        tower_norm(weights, config, f"{name}.{part}", D, centred=how.centred)
        for part in ("ln1", "ln2")
    )
    attention = tower_attention(weights, config, name, how)
    mlp = tower_mlp(weights, config, index, how)
    if weights.has(f"{name}.attn_q_norm.weight"):
        queries, keys = (
            tower_norm(weights, config, f"{name}.attn_{part}_norm", D, centred=False)
            for part in ("q", "k")
        )
        attention = replace(attention, query_norm=queries, key_norm=keys)
    scales = {
        id(one.projections[-1].weight): weights.vector(f"{name}.{part}.weight", D)
        for one, part in ((attention, "ls1"), (mlp, "ls2"))
    }
    made: list[Instruction] = []
    for one in instructions_of(Block(first, attention, second, mlp)):
        made.append(one)
        if isinstance(one, ops.Linear) and (scale := scales.get(id(one.weights[0]))) is not None:
            made.append(ops.ScaleChannels(one.outs[0], scale))
    return made


def _merged(rows: Tensor, grid: Grid, side: int) -> Tensor:
    """The patches of each square beside each other, without the class token."""
    return squares(rows[:-1], grid, side)
