"""granite, granitemoe, granite_swa, granitehybrid: scaled embeddings, scores, residuals and logits.

Otherwise llama blocks, with experts and one that all tokens run through in some. Those with sliding
windows have attention sinks. The hybrids of Granite 4 have Mamba-2 in most layers in place of
attention, and Granite 4 rotates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, gated_mlp, norm
from engine.models.config import (
    Config,
    layer_configs,
    per_layer,
    read_config,
    sliding_layers,
    sliding_window,
)
from engine.models.layers import Block, Decoder
from engine.models.mamba import state_space
from engine.models.mixers import Attention
from engine.models.parts import Rope
from engine.models.rope import no_rope, rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    name = config.architecture
    embedding, scores, residual, logits = (
        file.number(f"{name}.{key}", 0.0, minimum=0.0, maximum=1e6)
        for key in ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")
    )
    shared = 0
    if config.experts:
        key = f"{name}.expert_shared_feed_forward_length"
        shared = file.integer(key, 0, minimum=0, maximum=1 << 24)
    rotary = rope(file, config, weights, context, interleaved=True)
    ropes = [rotary if rotated else no_rope() for rotated in _rotated_layers(file, config)]
    windows = _windows(file, config)
    made: list[Block] = []
    for index, one in enumerate(layer_configs(file, config)):
        D, block = one.width, f"blk.{index}"
        mixer = (
            _attention(weights, one, index, ropes[index], windows[index], scores)
            if one.kv_heads
            else state_space(file, weights, one, index)
        )
        mlp = (
            experts(weights, one, index, Activation.SILU, shared=shared)
            if one.experts
            else gated_mlp(weights, one, index, Activation.SILU)
        )
        made.append(
            Block(
                attention_norm=norm(weights, one, f"{block}.attn_norm", D),
                attention=mixer,
                mlp_norm=norm(weights, one, f"{block}.ffn_norm", D),
                mlp=mlp,
                residual_scale=residual or 1.0,
            )
        )
    # Logits are linear in the output of the last norm, so its weight can absorb their divisor.
    last_norm = norm(weights, config, "output_norm", config.width)
    last_norm = replace(last_norm, weight=last_norm.weight / (logits or 1.0))
    return decoder(
        weights, config, tuple(made), last_norm=last_norm, embedding_scale=embedding or 1.0
    )


def _attention(
    weights: Weights, config: Config, index: int, rotary: Rope, window: int, scale: float
) -> Attention:
    made = attention(weights, config, index, rotary, scale=scale, window=window)
    if config.architecture != "granite_swa":
        return made
    return replace(made, sinks=weights.vector(f"blk.{index}.attn_sinks.weight", config.heads))


def _rotated_layers(file: GGUFFile, config: Config) -> Sequence[int | bool]:
    """Which layers have RoPE: all or none, or as a list says."""
    name = config.architecture
    if name == "granite_swa":
        return per_layer(file, f"{name}.attention.rope_pattern", config.layers, 1, maximum=1)
    rotates = True
    if name != "granitemoe":
        rotates = bool(file.metadata.get(f"{name}.rope.scaling.finetuned", True))
    return [rotates] * config.layers


def _windows(file: GGUFFile, config: Config) -> list[int]:
    """The sliding window of each layer, in tokens; 0: unlimited."""
    if config.architecture != "granite_swa":
        return [0] * config.layers
    window = sliding_window(file)
    # The first of four layers has none, unless the file says otherwise.
    key = f"{config.architecture}.attention.sliding_window_pattern"
    if key in file.metadata:
        local = sliding_layers(file, config, every=4)
    else:
        local = [index % 4 != 0 for index in range(config.layers)]
    return [window if slides else 0 for slides in local]
