"""spark2_5: windows in most layers, a gate for each head, GELU; layers may differ in heads."""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm, projection
from engine.models.config import (
    Config,
    layer_configs,
    read_config,
    sliding_layers,
    sliding_rope,
    sliding_window,
)
from engine.models.layers import Block, Decoder
from engine.models.mixers import OutputGate
from engine.models.parts import Rope
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    full = rope(file, config, weights, context, interleaved=False)
    local = rope(file, sliding_rope(file, config), weights, context, interleaved=False)
    weights.ignore_scales("ffn")  # as llama.cpp does; it also leaves out that of the gate
    window, slides = sliding_window(file), sliding_layers(file, config, every=4)
    blocks = tuple(
        _block(weights, own, index, local, window)
        if slides[index]
        else _block(weights, own, index, full, 0)
        for index, own in enumerate(layer_configs(file, config))
    )
    return decoder(weights, config, blocks)


def _block(weights: Weights, config: Config, index: int, rotary: Rope, window: int) -> Block:
    name, D = f"blk.{index}", config.width
    gate = projection(weights, f"{name}.attn_gate", config.heads, D)
    made = attention(weights, config, index, rotary, window=window)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=replace(made, gate=OutputGate(replace(gate, scale=1.0), Activation.SIGMOID)),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=gated_mlp(weights, config, index, Activation.GELU_TANH),
    )
