"""llama4: layers with RoPE that attend within a chunk, others without RoPE to all, and mixtures.

Llama 4 Scout and Maverick. Queries and keys are normed after RoPE, without weights; the queries of
the layers without RoPE grow with the position. The share of an expert scales its input.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.errors import UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder
from engine.models.config import Config, read_config, sliding_layers
from engine.models.feed_forward import Experts
from engine.models.layers import Block, Decoder
from engine.models.mixers import Attention, QueryScale
from engine.models.mixtures import mixture_block
from engine.models.parts import Norm, Rope
from engine.models.rope import no_rope, rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops.routing import Gating
from kernels.states.layer_state import PAGE_TOKENS

# What no key states: of every fourth layer without RoPE, and of the chunks of the others.
_NO_ROPE_EVERY, _CHUNK = 4, 8_192
_QUERY_SCALE = QueryScale(strength=0.1, length=8_192, offset=1.0)
_MAVERICK_EXPERTS = 128  # the model without norms of queries and keys


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    base = file.number("llama4.rope.freq_base_swa", config.rope_base, minimum=1.0, maximum=1e12)
    full, local = (
        rope(file, replace(config, rope_base=one), weights, context, interleaved=True)
        for one in (config.rope_base, base)
    )
    chunk = _chunk(file)
    chunked = sliding_layers(file, config, every=4)
    routing = replace(
        read_routing(file, config, Gating.SIGMOID),
        gating=Gating.SIGMOID_OF_CHOSEN,
        normalized=False,
    )
    weights.ignore_scales("ffn")  # llama.cpp does not apply them
    blocks: list[Block] = []
    for index, dense in enumerate(dense_layers(file, config)):
        rotary = local if chunked[index] else full
        mixer = _attention(weights, config, index, rotary, chunk if chunked[index] else 0)
        block = mixture_block(
            weights, config, index, mixer, dense, routing, shared=config.feed_forward
        )
        if isinstance(block.mlp, Experts):
            block = replace(block, mlp=replace(block.mlp, weighs_input=True))
        blocks.append(block)
    return decoder(weights, config, tuple(blocks))


def _chunk(file: GGUFFile) -> int:
    """The tokens of a chunk; raises UnsupportedModel for a model without chunks."""
    key = "llama4.attention.sliding_window"
    chunk = file.integer(key, _CHUNK, minimum=0, maximum=1 << 30)
    if not chunk or chunk % PAGE_TOKENS:
        raise UnsupportedModel(
            f"The key '{key}' is {chunk}; this version supports chunks of a multiple of "
            f"{PAGE_TOKENS} tokens.",
            "Choose Llama 4 Scout or Maverick.",
        )
    return chunk


def _attention(weights: Weights, config: Config, index: int, rotary: Rope, chunk: int) -> Attention:
    """Attention of block `index`, every fourth without RoPE."""
    if (index + 1) % _NO_ROPE_EVERY == 0:
        made = attention(weights, config, index, no_rope())
        return replace(made, query_scale=_QUERY_SCALE, chunk=chunk)
    made = attention(weights, config, index, rotary)
    unit: Norm | None = None
    if config.experts != _MAVERICK_EXPERTS:
        ones = weights.beside(f"blk.{index}", torch.ones(config.head_width))
        unit = Norm(ones, config.epsilon)
    return replace(made, query_norm=unit, key_norm=unit, norms_rotated=True, chunk=chunk)
