"""minicpmv4_6: MiniCPM-V 4.6: a SigLIP tower in the middle of which squares of patches are merged.

There the four patches of a square attend to each other, and an MLP of all, added to their mean, is
the row that the other blocks read. In the end four of these become a row for the text model. Files
for finer detail ("4x") have the tower alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from engine.errors import UnsupportedModel
from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.layers import Block
from engine.models.parts import Norm
from engine.models.weights import Weights
from engine.vision.encoder import Stage, Wiring
from engine.vision.patches import Grid, nearest_positions, square_order, squares
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import (
    PATCHES,
    Blocks,
    added_positions,
    instructions_of,
    merging_mlp,
    no_deltas,
    patch_embedding,
    program,
    square_positions,
    tower_attention,
    tower_block,
    tower_norm,
)
from kernels import ops
from kernels.ops import Activation, Instruction

_SIDE = 2  # of squares that are merged, at both places
_EPSILON = 1e-6  # of the projector's norm
_MERGER = "v.vit_merger"


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises EngineError naming a tensor or key that is missing or wrong."""
    if config.merge not in (_SIDE, _SIDE**2):
        raise UnsupportedModel(
            f"The picture encoder makes a row of {config.merge} x {config.merge} patches, and only "
            f"{_SIDE} x {_SIDE} or {_SIDE**2} x {_SIDE**2} are supported.",
            "Choose another mmproj file of the model.",
        )
    D, wide, merges = config.width, _SIDE**2 * config.width, config.merge > _SIDE
    how = Blocks(Activation.GELU_TANH, centred=True)
    blocks = [
        instructions_of(tower_block(weights, config, index, how)) for index in range(config.layers)
    ]
    first = blocks[: config.merging + 1] if merges else blocks
    last = blocks[len(first) :]
    body = [*patch_embedding(weights, config), added_positions(config), *_joined(first)]
    end = norm(tower_norm(weights, config, "v.post_ln", D, centred=True), STREAM, STREAM)
    stages: tuple[Stage, ...] = ()
    if merges:
        rest = [*_merging(weights, config), *_joined(last), end]
        stages = (
            Stage(program(_windows(weights, config, how), STREAM, {STREAM: D}), group=_SIDE**2),
            Stage(program(rest, STREAM, {"squares": wide}), _with_means),
        )
    else:
        body.append(end)
    weight, bias = (weights.vector(f"mm.input_norm.{part}", wide) for part in ("weight", "bias"))
    projector: list[Instruction] = [
        ops.GivenRows("squares"),
        norm(Norm(weight, _EPSILON, True, bias), "squares", "squares"),
        *merging_mlp(weights, config, ("mm.up", "mm.down"), ("squares", wide), "rows"),
    ]
    return Wiring(
        config,
        program(body, STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"squares": wide}),
        merged=partial(_merged, merged_before=_SIDE if merges else 1),
        positions=partial(nearest_positions, square_positions(weights, D)),
        order=partial(square_order, side=_SIDE) if merges else None,
        stages=stages,
    )


def _joined(blocks: Sequence[Sequence[Instruction]]) -> list[Instruction]:
    return [one for block in blocks for one in block]


def _windows(weights: Weights, config: VisionConfig, how: Blocks) -> list[Instruction]:
    """Attention of the patches of a square to each other, added to them."""
    before = tower_norm(weights, config, f"{_MERGER}.ln1", config.width, centred=True)
    attention = tower_attention(weights, config, _MERGER, how)
    return [ops.GivenRows(STREAM), *instructions_of(Block(before, attention, None, None))]


def _with_means(rows: Tensor, grid: Grid) -> Tensor:
    """The patches of each square, which are in order, and their mean: [T / 4, 5 * D]."""
    del grid
    apart = rows.view(-1, _SIDE**2, rows.shape[1])
    return torch.cat((apart.flatten(1), apart.mean(1)), 1)


def _merging(weights: Weights, config: VisionConfig) -> list[Instruction]:
    """From the patches of a square and their mean to a row of the tower."""
    D, wide, name = config.width, _SIDE**2 * config.width, f"{_MERGER}.ds_ffn_up"
    inner = weights.rows(f"{name}.weight")
    before = tower_norm(weights, config, f"{_MERGER}.ds_ln", wide, centred=True)
    up = projection(weights, name, inner, wide)
    down = projection(weights, f"{_MERGER}.ds_ffn_down", D, inner)
    return [
        ops.GivenRows("squares"),
        norm(before, "squares", "squares"),
        products("squares", ((up, "merging"),), no_deltas),
        ops.Gate("merging", "", Activation.GELU_TANH, "merging"),
        products("merging", ((down, STREAM),), no_deltas),
        ops.GivenRows(STREAM, wide, added=True),
    ]


def _merged(rows: Tensor, grid: Grid, merged_before: int) -> Tensor:
    """The rows of each square beside each other."""
    return squares(rows, Grid(*(side // merged_before for side in grid)), _SIDE)
