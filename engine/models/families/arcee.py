"""arcee: llama blocks whose MLP has no gate and squares a ReLU."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, mlp, norm
from engine.models.config import read_config
from engine.models.layers import Block, Decoder
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=True)
    blocks = tuple(
        Block(
            attention_norm=norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=attention(weights, config, index, rotary),
            mlp_norm=norm(weights, config, f"blk.{index}.ffn_norm", config.width),
            mlp=mlp(weights, config, index, Activation.RELU_SQUARED),
        )
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
