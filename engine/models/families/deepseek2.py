"""deepseek2 and mistral4: latent attention, mixtures with shared experts after dense layers.

DeepSeek V2 to V3.1, Kimi K2, GLM-4.7-Flash, Mistral Large 3 and Mistral 4.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder
from engine.models.config import Config, read_config
from engine.models.latent import latent_attention, read_widths
from engine.models.layers import Decoder
from engine.models.mixers import QueryScale
from engine.models.mixtures import mixture_block, shared_width
from engine.models.rope import magnitude, rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops.routing import Gating

_GLM_LAYERS, _GLM_VOCABULARY = (47, 48), 154_880  # early files of GLM-4.7-Flash state no gating


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    widths = read_widths(file, config)
    rotary = rope(file, config, weights, context, interleaved=True)
    scale = magnitude(file, config, rotary) ** 2 * widths.key**-0.5
    query_scale = _query_scale(file, config)
    glm = config.layers in _GLM_LAYERS and config.vocabulary == _GLM_VOCABULARY
    routing = read_routing(file, config, Gating.SIGMOID if glm else Gating.SOFTMAX)
    shared = shared_width(file, config)
    weights.ignore_scales("ffn")  # llama.cpp does not apply them
    blocks = tuple(
        mixture_block(
            weights,
            config,
            index,
            replace(
                latent_attention(weights, config, index, rotary, widths, scale),
                query_scale=query_scale,
            ),
            dense,
            routing,
            shared=shared,
        )
        for index, dense in enumerate(dense_layers(file, config))
    )
    return decoder(weights, config, blocks)


def _query_scale(file: GGUFFile, config: Config) -> QueryScale | None:
    """The scale of queries by position, which Mistral's models have."""
    prefix = f"{config.architecture}.attention.temperature"
    strength = file.number(f"{prefix}_scale", 0.0, minimum=0.0, maximum=1e3)
    if not strength:
        return None
    return QueryScale(strength, file.integer(f"{prefix}_length", minimum=1, maximum=1 << 30))
