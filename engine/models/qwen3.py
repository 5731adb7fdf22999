"""qwen3: Qwen 3 and the Bonsai models built on it: llama's blocks with normed queries and keys."""

from __future__ import annotations

from engine.gguf import GGUFFile
from engine.models.config import linear_rope_factor, read_config, rope_frequencies
from engine.models.layers import Decoder, Rope
from engine.models.wiring import decoder, pre_norm_block
from engine.weights import Weights


def build(file: GGUFFile, weights: Weights) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    frequencies = rope_frequencies(config.rope_base, config.head_width) / linear_rope_factor(file)
    rope = Rope(frequencies, interleaved=False)
    blocks = tuple(
        pre_norm_block(weights, config, index, rope, normed=True) for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
