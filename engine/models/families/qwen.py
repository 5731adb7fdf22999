"""qwen2, qwen3, qwen3moe, the Bonsai models, and the text side of qwen2vl, qwen3vl and qwen3vlmoe.

Llama blocks; qwen3 adds query and key norms. The three axes of RoPE are equal in a text: images
alone have others (`engine.models.seeing`).
"""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, pre_norm_block
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.rope import rope
from engine.models.weights import Weights


def build_qwen2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Query, key and value have biases; raises ModelFileError naming a faulty tensor."""
    return _build(file, weights, context, qk_norm=0)


def build_qwen3(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Each query and key head has an RMS norm; raises ModelFileError naming a faulty tensor."""
    return _build(file, weights, context, qk_norm=1)


def _build(file: GGUFFile, weights: Weights, context: int, qk_norm: int) -> Decoder:
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        pre_norm_block(weights, config, index, rotary, qk_norm=qk_norm)
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
