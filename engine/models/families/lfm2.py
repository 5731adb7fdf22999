"""lfm2, lfm2moe: gated short convolutions, with attention in some layers.

LFM2 and LFM2.5. Those with experts have some first layers without.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.builder import (
    attention,
    decoder,
    experts,
    gated_mlp,
    norm,
    projection,
    projections,
)
from engine.models.config import Config, layer_configs, read_config, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.mixers import ShortConvolution
from engine.models.parts import Convolution, Rope
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Gating, Routing

_SIGMOID = 2  # value of `expert_gating_func`


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    name = config.architecture
    dense = config.layers
    if config.experts:
        dense = file.integer(f"{name}.leading_dense_block_count", 0, minimum=0)
        _check_gating(file)
    inner = file.integer(f"{name}.feed_forward_length", minimum=1, maximum=1 << 24)
    taps = file.integer(f"{name}.shortconv.l_cache", minimum=2, maximum=4_096)
    rotary = rope(file, config, weights, context, interleaved=False)
    window = sliding_window(file) if name == "lfm2" else 0
    blocks = tuple(
        _block(
            weights,
            replace(one, experts=0, feed_forward=inner) if index < dense else one,
            index,
            rotary,
            window,
            taps,
        )
        for index, one in enumerate(layer_configs(file, config))
    )
    # The final norm has the name of another tensor, that of a norm of the embeddings.
    last_norm = norm(weights, config, "token_embd_norm", config.width)
    return decoder(weights, config, blocks, last_norm=last_norm)


def _check_gating(file: GGUFFile) -> None:
    key = "lfm2moe.expert_gating_func"
    if (found := file.integer(key, _SIGMOID)) != _SIGMOID:
        raise UnsupportedModel(
            f"The key '{key}' is {found}, a choice of experts this version does not support.",
            "Choose the plain version of this model.",
        )


def _block(
    weights: Weights, config: Config, index: int, rotary: Rope, window: int, taps: int
) -> Block:
    """A block with attention, or without key/value heads with a convolution."""
    name, D = f"blk.{index}", config.width
    if config.experts:
        routing = Routing(config.experts_per_token, Gating.SIGMOID)
        mlp = experts(weights, config, index, Activation.SILU, routing)
    else:
        mlp = gated_mlp(weights, config, index, Activation.SILU)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention(weights, config, index, rotary, qk_norm=1, window=window)
        if config.kv_heads
        else _convolution(weights, config, index, taps),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=mlp,
    )


def _convolution(weights: Weights, config: Config, index: int, taps: int) -> ShortConvolution:
    name, D = f"blk.{index}.shortconv", config.width
    before, after, value = projections(weights, f"{name}.in_proj", (D, D, D), D)
    return ShortConvolution(
        before=before,
        after=after,
        value=value,
        convolution=Convolution(weights.table(f"{name}.conv.weight", D, taps)),
        output=projection(weights, f"{name}.out_proj", D, D),
    )
