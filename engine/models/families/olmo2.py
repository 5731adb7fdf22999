"""olmo2: post-norms only, after attention and MLP; query and key norms over all heads."""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import read_config, sliding_layers, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.rope import rope, rope_frequencies
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    global_rope = rope(file, config, weights, context, interleaved=False)
    unscaled = rope_frequencies(config.rope_base, config.rotary_dim)
    local_rope = replace(global_rope, frequencies=unscaled, scale=1.0)
    window = sliding_window(file)  # only in Olmo 3, which is converted as olmo2
    local = sliding_layers(file, config, every=4) if window else [False] * config.layers
    blocks = tuple(
        Block(
            attention_norm=None,
            attention=attention(
                weights,
                config,
                index,
                local_rope if slides else global_rope,
                qk_norm=config.heads,
                window=window if slides else 0,
            ),
            mlp_norm=None,
            mlp=gated_mlp(weights, config, index, Activation.SILU),
            after_attention=norm(weights, config, f"blk.{index}.post_attention_norm", config.width),
            after_mlp=norm(weights, config, f"blk.{index}.post_ffw_norm", config.width),
        )
        for index, slides in enumerate(local)
    )
    return decoder(weights, config, blocks)
