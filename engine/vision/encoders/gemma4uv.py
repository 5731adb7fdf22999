"""gemma4uv: Gemma 4 12B, which has no tower: each large patch becomes a row by a matrix.

Layer norms before and after it, and after learned positions of columns and of rows are added.
"""

from __future__ import annotations

from functools import partial

from engine.models.forward_parts import STREAM, norm
from engine.models.parts import Norm
from engine.models.weights import Weights
from engine.vision.encoder import Wiring, unchanged
from engine.vision.encoders.gemma4v import normed_projector
from engine.vision.patches import summed_positions
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import PATCHES, added_positions, patch_embedding, program

_EPSILON = 1e-5  # of the layer norms


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D = config.width
    of_pixels, of_patch, of_sum = (
        Norm(
            weights.vector(f"{name}.weight", width),
            _EPSILON,
            True,
            weights.vector(f"{name}.bias", width),
        )
        for name, width in (
            ("v.patch_norm.1", config.pixels),
            ("v.patch_norm.2", D),
            ("v.patch_norm.3", D),
        )
    )
    given, product = patch_embedding(weights, config)
    body = [
        given,
        norm(of_pixels, PATCHES, PATCHES),
        product,
        norm(of_patch, STREAM, STREAM),
        added_positions(config),
        norm(of_sum, STREAM, STREAM),
    ]
    return Wiring(
        config,
        program(body, STREAM, {PATCHES: config.pixels}),
        normed_projector(weights, config),
        merged=unchanged,
        positions=partial(summed_positions, weights.tables("v.position_embd.weight", 2, D).cpu()),
    )
