"""ernie4_5 and ernie4_5-moe: llama blocks; mixtures after dense layers, with a shared expert."""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, pre_norm_block
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.mixtures import mixture_block
from engine.models.rope import rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops.routing import Gating


def build_ernie4_5(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = replace(read_config(file), experts=0)
    rotary = rope(file, config, weights, context, interleaved=True)
    weights.ignore(*(f"blk.{index}.attn_output.bias" for index in range(config.layers)))
    blocks = tuple(pre_norm_block(weights, config, index, rotary) for index in range(config.layers))
    return decoder(weights, config, blocks)


def build_ernie4_5_moe(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=True)
    weights.ignore(*(f"blk.{index}.attn_output.bias" for index in range(config.layers)))
    routing = replace(
        read_routing(file, config, Gating.SOFTMAX), gating=Gating.SOFTMAX, normalized=True
    )
    key = "ernie4_5-moe.expert_shared_feed_forward_length"
    shared = file.integer(key, 0, minimum=0, maximum=1 << 24)
    weights.ignore_scales("ffn")  # llama.cpp does not apply them
    blocks = tuple(
        mixture_block(
            weights,
            config,
            index,
            attention(weights, config, index, rotary),
            dense,
            routing,
            shared=shared,
        )
        for index, dense in enumerate(dense_layers(file, config))
    )
    return decoder(weights, config, blocks)
