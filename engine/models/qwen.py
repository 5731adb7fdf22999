"""qwen2 and qwen3, qwen3moe, the Bonsai models: llama's blocks, since Qwen 3 with normed heads."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, pre_norm_block
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.rope import rope
from engine.models.weights import Weights


def build_qwen2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Queries, keys and values have biases; raises ModelFileError naming a tensor at fault."""
    return _build(file, weights, context, normed=0)


def build_qwen3(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Each head of queries and keys is normed; raises ModelFileError naming a tensor at fault."""
    return _build(file, weights, context, normed=1)


def _build(file: GGUFFile, weights: Weights, context: int, normed: int) -> Decoder:
    config = read_config(file)
    turning = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        pre_norm_block(weights, config, index, turning, normed=normed)
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
