"""pixtral: Pixtral, Mistral Small 3, Ministral 3: RoPE by row and column, gated MLPs, RMS norms.

Squares of patches are merged by a matrix; behind each row of squares but the last stands a row that
says so.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.patches import Grid, coordinates, square_order
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import (
    PATCHES,
    Blocks,
    axial_rope,
    instructions_of,
    merging_mlp,
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
    D, wide = config.width, config.merge**2 * config.width
    how = Blocks(
        Activation.SILU if config.silu else Activation.GELU,
        centred=False,
        rope=axial_rope(config, _ROPE_BASE, interleaved=True, alternate=True),
        gated=True,
    )
    first = tower_norm(weights, config, "v.pre_ln", D, centred=False)
    body = [*patch_embedding(weights, config), norm(first, STREAM, STREAM)]
    for index in range(config.layers):
        body += instructions_of(tower_block(weights, config, index, how))
    projector: list[Instruction] = [ops.GivenRows("squares")]
    source, columns = "squares", wide
    if weights.has("mm.patch_merger.weight"):
        last = tower_norm(weights, config, "mm.input_norm", D, centred=False)
        body.append(norm(last, STREAM, STREAM))
        merger = projection(weights, "mm.patch_merger", D, wide)
        projector.append(products(source, ((merger, "merged"),), no_deltas))
        source, columns = "merged", D
    projector += merging_mlp(weights, config, ("mm.1", "mm.2"), (source, columns), "rows")
    line = weights.vector("v.token_embd.img_break", config.output).cpu()
    return Wiring(
        config,
        program(body, STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"squares": wide}),
        merged=partial(_merged, side=config.merge),
        axes=coordinates,
        finished=partial(_with_breaks, side=config.merge, line=line),
    )


def _merged(rows: Tensor, grid: Grid, side: int) -> Tensor:
    """The patches of each square beside each other, channel by channel."""
    ordered = rows[square_order(grid, side).to(rows.device)].view(-1, side * side, rows.shape[1])
    return ordered.transpose(1, 2).reshape(len(ordered), -1)


def _with_breaks(rows: Tensor, grid: Grid, side: int, line: Tensor) -> Tensor:
    """Rows with the break behind each line of squares but the last."""
    lines = rows.view(grid.rows // side, grid.columns // side, -1)
    breaks = line.expand(len(lines), 1, -1)
    return torch.cat((lines, breaks), 1).flatten(0, 1)[:-1]
