"""mamba2: Mamba-2 mixers alone, without attention and feed-forward, such as Mamba-Codestral."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, norm
from engine.models.config import read_config
from engine.models.layers import Block, Decoder
from engine.models.mamba import state_space
from engine.models.weights import Weights


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    del context
    config = read_config(file)
    blocks = tuple(
        Block(
            attention_norm=norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=state_space(file, weights, config, index),
            mlp_norm=None,
            mlp=None,
        )
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
