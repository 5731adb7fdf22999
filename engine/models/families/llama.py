"""llama: Llama 1 to 3, Mistral, Mixtral, SmolLM, TinyLlama and all models converted as llama."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, pre_norm_block
from engine.models.config import read_config, sliding_window
from engine.models.layers import Decoder
from engine.models.rope import rope
from engine.models.weights import Weights


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=True)
    window = sliding_window(file)  # only in the first Mistral
    blocks = tuple(
        pre_norm_block(weights, config, index, rotary, window=window)
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
