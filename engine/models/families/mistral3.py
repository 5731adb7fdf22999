"""mistral3: llama blocks with YaRN, and a scale of queries that grows with the position.

Ministral 3 and Mistral Small 3.1 and later.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.mixers import QueryScale
from engine.models.mixtures import mixture_block
from engine.models.rope import rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops.routing import Gating


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=True)
    key = "mistral3.attention.temperature_scale"
    query_scale: QueryScale | None = None
    if strength := file.number(key, 0.0, minimum=0.0, maximum=1e3):
        trained = "mistral3.rope.scaling.original_context_length"
        query_scale = QueryScale(strength, file.integer(trained, config.context, minimum=1))
    routing = read_routing(file, config, Gating.SOFTMAX, normalized=True)
    blocks = tuple(
        mixture_block(
            weights,
            config,
            index,
            replace(attention(weights, config, index, rotary), query_scale=query_scale),
            dense,
            routing,
        )
        for index, dense in enumerate(dense_layers(file, config))
    )
    return decoder(weights, config, blocks)
