"""olmoe: a mixture whose shares are not divided by their sum; query and key norms over all heads."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, norm
from engine.models.config import read_config
from engine.models.layers import Block, Decoder
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Routing


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    routing = Routing(config.experts_per_token, normalized=False)
    blocks = tuple(
        Block(
            attention_norm=norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=attention(weights, config, index, rotary, qk_norm=config.heads),
            mlp_norm=norm(weights, config, f"blk.{index}.ffn_norm", config.width),
            mlp=experts(weights, config, index, Activation.SILU, routing),
        )
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
