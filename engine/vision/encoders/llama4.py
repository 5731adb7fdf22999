"""llama4: Llama 4: a ViT over tiles of one size, with RoPE by column and row of the patches.

The class token behind the patches becomes no row. The patches of a square are one row, after an MLP
whose result has an activation, too. GELU is the exact one, whatever the file says.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from engine.errors import ModelFileError
from engine.gguf.values import DAMAGED
from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.patches import Grid, coordinates, fixed_positions, squares
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
    tower_block,
    tower_norm,
)
from kernels import ops
from kernels.ops import Activation, Instruction

_ROPE_BASE = 10_000.0


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D, side = config.width, config.image // config.patch
    wide = config.merge**2 * D
    if side % config.merge:
        raise ModelFileError(
            f"Tiles of {side} x {side} patches are not whole squares of {config.merge}.", DAMAGED
        )
    table = weights.table("v.position_embd.weight", side * side + 1, D).cpu()
    token = weights.table("v.class_embd", 1, D).cpu()
    rope = axial_rope(config, _ROPE_BASE, interleaved=True)
    how = Blocks(Activation.GELU, centred=True, rope=rope)
    first, last = (
        norm(tower_norm(weights, config, f"v.{name}", D, centred=True), STREAM, STREAM)
        for name in ("pre_ln", "post_ln")
    )
    body = [*patch_embedding(weights, config), added_positions(config), first]
    for index in range(config.layers):
        body += instructions_of(tower_block(weights, config, index, how))
    return Wiring(
        config,
        program([*body, last], STREAM, {PATCHES: config.pixels}),
        program(_projector(weights, config, wide), "rows", {"squares": wide}),
        merged=partial(_merged, side=config.merge),
        positions=partial(fixed_positions, torch.cat((table[:-1], token + table[-1:])), side),
        axes=_axes,
    )


def _projector(weights: Weights, config: VisionConfig, wide: int) -> list[Instruction]:
    inner, outer = (weights.rows(f"mm.model.mlp.{number}.weight") for number in (1, 2))
    first = projection(weights, "mm.model.mlp.1", inner, wide)
    second = projection(weights, "mm.model.mlp.2", outer, inner)
    rows = projection(weights, "mm.model.fc", config.output, outer)
    return [
        ops.GivenRows("squares"),
        products("squares", ((first, "inner"),), no_deltas),
        ops.Gate("inner", "", Activation.GELU, "inner"),
        products("inner", ((second, "outer"),), no_deltas),
        ops.Gate("outer", "", Activation.GELU, "outer"),
        products("outer", ((rows, "rows"),), no_deltas),
    ]


def _axes(grid: Grid) -> Tensor:
    """Column and row of every patch, from 1; the class token's are 0."""
    return functional.pad(coordinates(grid).flip(1) + 1, (0, 0, 0, 1))


def _merged(rows: Tensor, grid: Grid, side: int) -> Tensor:
    """The patches of each square beside each other, without the class token."""
    return squares(rows[:-1], grid, side)
