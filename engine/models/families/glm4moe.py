"""glm4moe: llama blocks with partial RoPE, mixtures with shared experts after dense layers.

GLM-4.5 to 4.7. The larger ones also norm queries and keys.
"""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.mixtures import mixture_block, shared_width
from engine.models.rope import rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops.routing import Gating


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    routing = read_routing(file, config, Gating.SIGMOID)
    shared = shared_width(file, config)
    weights.ignore_scales("ffn")  # llama.cpp does not apply them
    blocks = tuple(
        mixture_block(
            weights,
            config,
            index,
            attention(
                weights,
                config,
                index,
                rotary,
                qk_norm=int(weights.has(f"blk.{index}.attn_q_norm.weight")),
            ),
            dense,
            routing,
            shared=shared,
            mlp_norm="post_attention_norm",
        )
        for index, dense in enumerate(dense_layers(file, config))
    )
    return decoder(weights, config, blocks)
