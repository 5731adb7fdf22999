"""glm4v: GLM-4.1V to 4.6V: RMS norms and gated MLPs, RoPE by row and column.

Patches in squares, each by two kernels that are summed, then normed; learned positions, resized
bicubically. The patches of a square become a row by a matrix, then by a normed MLP.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.parts import Norm, Projection
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.patches import Grid, coordinates, resized_positions, square_order
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
    square_positions,
    tower_block,
    tower_norm,
)
from kernels import ops
from kernels.ops import Activation, Instruction

_ROPE_BASE = 10_000.0
_EPSILON = 1e-5  # of the projector's norm


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D = config.width
    activation = Activation.SILU if config.silu else Activation.GELU
    how = Blocks(activation, centred=False, rope=axial_rope(config, _ROPE_BASE), gated=True)
    first, last = (
        tower_norm(weights, config, name, D, centred=False) for name in ("v.norm_embd", "v.post_ln")
    )
    body = [
        *patch_embedding(weights, config, ("v.patch_embd.weight", "v.patch_embd.weight.1")),
        norm(first, STREAM, STREAM),
        added_positions(config),
    ]
    for index in range(config.layers):
        body += instructions_of(tower_block(weights, config, index, how))
    body.append(norm(last, STREAM, STREAM))
    table = square_positions(weights, D)
    return Wiring(
        config,
        program(body, STREAM, {PATCHES: config.pixels}),
        program(_merger(weights, config, activation), "rows", {"squares": config.merge**2 * D}),
        merged=partial(_merged, square=config.merge**2),
        positions=partial(resized_positions, table, corners=False, bicubic=True),
        axes=coordinates,
        order=partial(square_order, side=config.merge),
    )


def _merged(rows: Tensor, grid: Grid, square: int) -> Tensor:
    """The patches of each square, which are in order, beside each other, channel by channel."""
    del grid
    return (
        rows.view(len(rows) // square, square, -1)
        .transpose(1, 2)
        .reshape(-1, square * rows.shape[1])
    )


def _merger(weights: Weights, config: VisionConfig, activation: Activation) -> list[Instruction]:
    """From the patches of a square to a row of the text model."""
    W, wide = config.output, config.merge**2 * config.width
    name = "mm.patch_merger"
    kernel = weights.flat_matrix(f"{name}.weight", W, wide)
    matrix = Projection(f"{name}.weight", kernel, weights.vector(f"{name}.bias", W))
    weight, bias = (weights.vector(f"mm.post_norm.{part}", W) for part in ("weight", "bias"))
    inner = weights.rows("mm.up.weight")
    gate, up = (projection(weights, f"mm.{part}", inner, W) for part in ("gate", "up"))
    return [
        ops.GivenRows("squares"),
        products("squares", ((matrix, "merged"),), no_deltas),
        products("merged", ((projection(weights, "mm.model.fc", W, W), "normed"),), no_deltas),
        norm(Norm(weight, _EPSILON, True, bias), "normed", "normed"),
        ops.Gate("normed", "", Activation.GELU, "normed"),
        products("normed", ((gate, "gate"), (up, "up")), no_deltas),
        ops.Gate("gate", "up", activation, "gate"),
        products("gate", ((projection(weights, "mm.down", W, inner), "rows"),), no_deltas),
    ]
