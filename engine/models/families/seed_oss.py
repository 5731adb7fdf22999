"""seed_oss: llama blocks with biases of queries, keys and values, and half-split RoPE."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import read_config
from engine.models.layers import Block, Decoder
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        Block(
            attention_norm=norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=attention(weights, config, index, rotary),
            mlp_norm=norm(weights, config, f"blk.{index}.post_attention_norm", config.width),
            mlp=gated_mlp(weights, config, index, Activation.SILU),
        )
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
