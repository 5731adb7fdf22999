"""idefics3: SmolVLM, SmolVLM2, Idefics 3: a SigLIP tower, whose squares of patches are one row."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from engine.models.builder import projection
from engine.models.forward_parts import STREAM, products
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.encoders.siglip import siglip_tower
from engine.vision.patches import Grid, squares
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import PATCHES, no_deltas, program, square_positions
from kernels import ops


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D, wide = config.width, config.merge**2 * config.width
    rows = projection(weights, "mm.model.fc", config.output, wide)
    projector = [ops.GivenRows("squares"), products("squares", ((rows, "rows"),), no_deltas)]
    return Wiring(
        config,
        program(siglip_tower(weights, config), STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"squares": wide}),
        merged=partial(squares, side=config.merge),
        positions=partial(_positions, square_positions(weights, D)),
    )


def _positions(table: Tensor, grid: Grid) -> Tensor:
    """Of learned positions [side, side, D] those nearest to the patches, as shares of the sides."""
    side = len(table)
    bounds = torch.arange(1 / side, 1.0, 1 / side)
    rows, columns = (
        torch.bucketize(torch.arange(count) * (1 / count), bounds, right=True) for count in grid
    )
    return table[rows[:, None], columns].flatten(0, 1)
