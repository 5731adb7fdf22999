"""smollm3: llama blocks without position encoding in every fourth layer."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, pre_norm_block
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.rope import no_rope, rope
from engine.models.weights import Weights

_EVERY = 4  # layers, which no key of the file states


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=True)
    blocks = tuple(
        pre_norm_block(weights, config, index, rotary if (index + 1) % _EVERY else no_rope())
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
