"""hunyuan-dense: llama blocks whose queries and keys are normed after RoPE."""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import read_config
from engine.models.layers import Block, Decoder
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = replace(read_config(file), experts=0)
    C = config.head_width
    if alpha := file.number("hunyuan-dense.rope.scaling.alpha", 0.0, minimum=0.0, maximum=1e9):
        config = replace(config, rope_base=config.rope_base * alpha ** (C / (C - 2)))
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        Block(
            attention_norm=norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=replace(
                attention(weights, config, index, rotary, qk_norm=1), norms_rotated=True
            ),
            mlp_norm=norm(weights, config, f"blk.{index}.ffn_norm", config.width),
            mlp=gated_mlp(weights, config, index, Activation.SILU),
        )
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
