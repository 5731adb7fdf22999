"""lfm2: LFM2-VL, a SigLIP 2 tower with resized positions, whose squares of patches are projected."""

from __future__ import annotations

from functools import partial

from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.parts import Norm
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.encoders.siglip import siglip_tower
from engine.vision.patches import resized_positions, squares
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import PATCHES, no_deltas, program
from kernels import ops
from kernels.ops import Activation, Instruction

_EPSILON = 1e-5  # of the projector's norm


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D, wide = config.width, config.merge**2 * config.width
    table = weights.table("v.position_embd.weight", weights.rows("v.position_embd.weight"), D)
    rows = weights.rows("mm.1.weight")
    up = projection(weights, "mm.1", rows, wide)
    down = projection(weights, "mm.2", config.output, rows)
    projector: list[Instruction] = [ops.GivenRows("squares")]
    if weights.has("mm.input_norm.weight"):
        weight, bias = (
            weights.vector(f"mm.input_norm.{part}", wide) for part in ("weight", "bias")
        )
        projector.append(norm(Norm(weight, _EPSILON, True, bias), "squares", "squares"))
    projector += [
        products("squares", ((up, "inner"),), no_deltas),
        ops.Gate("inner", "", Activation.GELU, "inner"),
        products("inner", ((down, "rows"),), no_deltas),
    ]
    return Wiring(
        config,
        program(siglip_tower(weights, config), STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"squares": wide}),
        merged=partial(squares, side=config.merge),
        positions=partial(resized_positions, table, corners=False),
    )
