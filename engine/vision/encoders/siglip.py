"""The SigLIP tower: patches with learned positions, layer norms, MLPs with a tanh GELU."""

from __future__ import annotations

from engine.models.forward_parts import STREAM, norm
from engine.models.weights import Weights
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import (
    Blocks,
    added_positions,
    instructions_of,
    patch_embedding,
    tower_block,
    tower_norm,
)
from kernels.ops import Activation, Instruction


def siglip_tower(weights: Weights, config: VisionConfig) -> list[Instruction]:
    """From given rows, pixels and positions, to normed states in the stream."""
    how = Blocks(Activation.GELU_TANH, centred=True)
    body = [*patch_embedding(weights, config), added_positions(config)]
    for index in range(config.layers):
        body += instructions_of(tower_block(weights, config, index, how))
    last = tower_norm(weights, config, "v.post_ln", config.width, centred=True)
    return [*body, norm(last, STREAM, STREAM)]
