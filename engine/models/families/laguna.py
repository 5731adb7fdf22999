"""laguna: sigmoid-routed mixtures with a shared expert, and a softplus gate of attention.

Smaller ones have a sliding window in three layers of four, whose RoPE is not scaled, and a gate for
each head; the largest has full attention in all layers and a gate for each channel.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, gated_mlp, norm, projection
from engine.models.config import (
    Config,
    layer_configs,
    read_config,
    sliding_layers,
    sliding_rope,
    sliding_window,
)
from engine.models.feed_forward import Experts, GatedMLP
from engine.models.layers import Block, Decoder
from engine.models.mixers import Attention, OutputGate
from engine.models.parts import Rope
from engine.models.rope import rope, rope_frequencies
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Gating


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    name = config.architecture
    weights.ignore_scales("ffn")  # as llama.cpp does; it also leaves out that of the gate
    full = rope(file, config, weights, context, interleaved=False)
    own = sliding_rope(file, config)
    unscaled = rope_frequencies(own.rope_base, own.rotary_dim)
    local = replace(full, frequencies=unscaled, scale=1.0)
    window = sliding_window(file)
    slides = [False] * config.layers
    if window:
        slides = sliding_layers(file, config, every=4, full_first=True)
    routing = read_routing(file, config, Gating.SIGMOID)
    count = file.integer(f"{name}.expert_shared_count", 1, minimum=0, maximum=4_096)
    shared = file.integer(
        f"{name}.expert_shared_feed_forward_length",
        config.feed_forward * count,
        minimum=1,
        maximum=1 << 24,
    )

    def mlp(index: int, dense: Config | None) -> Experts | GatedMLP:
        if dense is not None:
            return gated_mlp(weights, dense, index, Activation.SILU)
        return experts(weights, config, index, Activation.SILU, routing, shared=shared)

    heads, dense = layer_configs(file, config), dense_layers(file, config)
    blocks = tuple(
        Block(
            attention_norm=norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=_attention(weights, heads[index], index, local, window)
            if slides[index]
            else _attention(weights, heads[index], index, full, 0),
            mlp_norm=norm(weights, config, f"blk.{index}.ffn_norm", config.width),
            mlp=mlp(index, dense[index]),
        )
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)


def _attention(
    weights: Weights, config: Config, index: int, rotary: Rope, window: int
) -> Attention:
    """Attention whose output has a gate for each channel if the tensor is so large, or each head."""
    name, rows = f"blk.{index}.attn_gate", config.heads
    if weights.rows(f"{name}.weight") == rows * config.head_width:
        rows *= config.head_width
    gate = projection(weights, name, rows, config.width)
    made = attention(weights, config, index, rotary, qk_norm=1, window=window)
    return replace(made, gate=OutputGate(replace(gate, scale=1.0), Activation.SOFTPLUS))
