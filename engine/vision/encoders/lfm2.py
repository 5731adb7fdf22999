"""lfm2: LFM2-VL, a SigLIP 2 tower with resized positions, whose squares of patches are projected."""

from __future__ import annotations

from functools import partial

from engine.models.forward_parts import STREAM, norm
from engine.models.parts import Norm
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.encoders.siglip import siglip_tower
from engine.vision.patches import resized_positions, squares
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import PATCHES, merging_mlp, program, square_positions
from kernels import ops
from kernels.ops import Instruction

_EPSILON = 1e-5  # of the projector's norm


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D, wide = config.width, config.merge**2 * config.width
    projector: list[Instruction] = [ops.GivenRows("squares")]
    if weights.has("mm.input_norm.weight"):
        weight, bias = (
            weights.vector(f"mm.input_norm.{part}", wide) for part in ("weight", "bias")
        )
        projector.append(norm(Norm(weight, _EPSILON, True, bias), "squares", "squares"))
    projector += merging_mlp(weights, config, ("mm.1", "mm.2"), ("squares", wide), "rows")
    return Wiring(
        config,
        program(siglip_tower(weights, config), STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"squares": wide}),
        merged=partial(squares, side=config.merge),
        positions=partial(resized_positions, square_positions(weights, D), corners=False),
    )
