"""llama: Llama 1 to 3, SmolLM, TinyLlama and everything converted as their kind."""

from __future__ import annotations

from engine.gguf import GGUFFile
from engine.models.config import Config, linear_rope_factor, read_config, rope_frequencies
from engine.models.layers import Decoder, Rope
from engine.models.wiring import decoder, pre_norm_block
from engine.weights import Weights


def build(file: GGUFFile, weights: Weights) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rope = _rope(file, config, weights)
    blocks = tuple(pre_norm_block(weights, config, index, rope) for index in range(config.layers))
    return decoder(weights, config, blocks)


def _rope(file: GGUFFile, config: Config, weights: Weights) -> Rope:
    """Llama 3's long contexts store a divisor per frequency in the tensor 'rope_freqs.weight'."""
    frequencies = rope_frequencies(config.rope_base, config.head_width) / linear_rope_factor(file)
    divisors = weights.optional_vector("rope_freqs.weight", config.head_width // 2)
    if divisors is not None:
        frequencies = frequencies / divisors
    return Rope(frequencies, interleaved=True)
