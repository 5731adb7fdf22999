"""falcon-h1: attention and Mamba-2 of the same input in every layer, whose outputs are added.

Files have the muP multipliers of the models in their weights.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import Config, read_config
from engine.models.layers import Block, Decoder
from engine.models.mamba import state_space
from engine.models.mixers import Attention, ParallelMixers
from engine.models.parts import Norm, Rope
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    weights.ignore("rope_freqs.weight")  # llama.cpp does not divide by what a file may have
    rotary = rope(file, config, weights, context, interleaved=False, has_divisors=False)
    scale = file.number(f"{config.architecture}.attention.scale", 0.0, minimum=0.0, maximum=1e6)
    blocks = tuple(
        _block(file, weights, config, index, rotary, scale) for index in range(config.layers)
    )
    return decoder(weights, config, blocks)


def _block(
    file: GGUFFile, weights: Weights, config: Config, index: int, rotary: Rope, scale: float
) -> Block:
    name, D = f"blk.{index}", config.width
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=ParallelMixers(
            (
                _attention(weights, config, index, rotary, scale),
                state_space(file, weights, config, index, has_norm=False),
            ),
            input_scales=(1.0, 1.0),
            output_scales=(1.0, 1.0),
        ),
        mlp_norm=_mlp_norm(weights, config, name),
        mlp=gated_mlp(weights, config, index, Activation.SILU),
    )


def _attention(
    weights: Weights, config: Config, index: int, rotary: Rope, scale: float
) -> Attention:
    """Attention, for whose output llama.cpp does not use the bias that a file may have."""
    made = attention(weights, config, index, rotary, scale=scale)
    return replace(made, output=replace(made.output, bias=None))


def _mlp_norm(weights: Weights, config: Config, name: str) -> Norm:
    """The norm before the feed-forward, whose name lacks its end in files of llama.cpp."""
    short = f"{name}.ffn_norm"
    if weights.has(short):
        return Norm(weights.vector(short, config.width), config.epsilon)
    return norm(weights, config, short, config.width)
