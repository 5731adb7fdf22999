"""gemma3: a SigLIP tower over pictures of one size, whose squares of patches are averaged."""

from __future__ import annotations

from functools import partial

from engine.errors import ModelFileError
from engine.gguf.values import DAMAGED
from engine.models.forward_parts import STREAM, norm, products
from engine.models.parts import Norm, Projection
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.encoders.siglip import siglip_tower
from engine.vision.patches import fixed_positions, square_means
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import PATCHES, no_deltas, prepared, program
from kernels import ops


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D, side = config.width, config.image // config.patch
    table = weights.table("v.position_embd.weight", side * side, D).cpu()
    if side % config.merge:
        raise ModelFileError(
            f"Pictures of {side} x {side} patches are not whole squares of {config.merge}.", DAMAGED
        )
    name = "mm.input_projection.weight"  # [in, out], as it is multiplied
    matrix = weights.table(name, D, config.output)
    soft_norm = Norm(weights.vector("mm.soft_emb_norm.weight", D), config.epsilon)
    rows = (Projection(name, prepared(weights, matrix.T)), "rows")
    projector = [
        ops.GivenRows("means"),
        norm(soft_norm, "means", "means"),
        products("means", (rows,), no_deltas),
    ]
    return Wiring(
        config,
        program(siglip_tower(weights, config), STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"means": D}),
        merged=partial(square_means, side=config.merge),
        positions=partial(fixed_positions, table, side),
    )
