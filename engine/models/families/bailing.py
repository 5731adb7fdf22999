"""bailingmoe2: llama blocks with query and key norms, mixtures with shared experts after dense layers.

Ling 2 and Ring 2.
"""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.mixtures import mixture_block
from engine.models.rope import rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights


def build_bailingmoe2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    routing = read_routing(file, config)
    key = "bailingmoe2.expert_shared_feed_forward_length"
    shared = file.integer(key, 0, minimum=0, maximum=1 << 24) or config.feed_forward
    shared *= file.integer("bailingmoe2.expert_shared_count", minimum=0, maximum=4_096)
    weights.ignore_scales("ffn")  # llama.cpp does not apply them
    blocks = tuple(
        mixture_block(
            weights,
            config,
            index,
            attention(weights, config, index, rotary, qk_norm=1),
            dense,
            routing,
            shared=shared,
        )
        for index, dense in enumerate(dense_layers(file, config))
    )
    return decoder(weights, config, blocks)
