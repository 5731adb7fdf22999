"""bitnet: weights of three values, with norms before the last product of attention and MLP.

Every product has a factor in the file, unless it is part of the weights.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import Config, read_config
from engine.models.layers import Block, Decoder
from engine.models.parts import Rope
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.program import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(_block(weights, config, index, rotary) for index in range(config.layers))
    return decoder(weights, config, blocks)


def _block(weights: Weights, config: Config, index: int, rotary: Rope) -> Block:
    D, name = config.width, f"blk.{index}"
    mixed = norm(weights, config, f"{name}.attn_sub_norm", config.heads * config.head_width)
    inner = norm(weights, config, f"{name}.ffn_sub_norm", config.feed_forward)
    mlp = gated_mlp(weights, config, index, Activation.SILU)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=replace(attention(weights, config, index, rotary), output_norm=mixed),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=replace(mlp, inner_norm=inner),
    )
