"""maple, mellum: Qwen3 mixtures with a sliding window in most layers.

In maple the layers with full attention have no position encoding, and the products before the
activation are cut; in mellum the RoPE scaling of a long context is that of these layers alone.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, norm
from engine.models.config import (
    Config,
    read_config,
    sliding_layers,
    sliding_rope,
    sliding_window,
)
from engine.models.layers import Block, Decoder
from engine.models.parts import Rope
from engine.models.rope import no_rope, rope, rope_frequencies
from engine.models.weights import Weights
from kernels.ops import Activation


def build_maple(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    weights.ignore_scales("ffn")  # as llama.cpp does
    local = rope(file, sliding_rope(file, config), weights, context, interleaved=False)
    return _build(file, weights, config, local, no_rope(), _limits(file, config))


def build_mellum(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    full = rope(file, config, weights, context, interleaved=False)
    own = sliding_rope(file, config)
    unscaled = rope_frequencies(own.rope_base, own.rotary_dim)
    local = replace(full, frequencies=unscaled, scale=1.0)
    return _build(file, weights, config, local, full, [0.0] * config.layers)


def _build(
    file: GGUFFile, weights: Weights, config: Config, local: Rope, full: Rope, limits: list[float]
) -> Decoder:
    window = sliding_window(file)
    slides = sliding_layers(file, config, every=4) if window else [False] * config.layers
    blocks = tuple(
        _block(weights, config, index, local, window, limit)
        if slides[index]
        else _block(weights, config, index, full, 0, limit)
        for index, limit in enumerate(limits)
    )
    return decoder(weights, config, blocks)


def _block(
    weights: Weights, config: Config, index: int, rotary: Rope, window: int, limit: float
) -> Block:
    name, D = f"blk.{index}", config.width
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention(weights, config, index, rotary, qk_norm=1, window=window),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=experts(weights, config, index, Activation.SILU, limit=limit),
    )


def _limits(file: GGUFFile, config: Config) -> list[float]:
    """What gate and up of each layer's experts are cut to; 0: not at all."""
    key = f"{config.architecture}.swiglu_clamp_exp"
    found = file.metadata.get(key)
    if not isinstance(found, list):
        return [file.number(key, minimum=0.0, maximum=1e6)] * config.layers
    values = [float(one) for one in found if isinstance(one, int | float) and 0 <= one <= 1e6]
    if len(values) < len(found) or len(values) < config.layers:
        raise ModelFileError(
            f"The key '{key}' has {len(found):,} values for {config.layers:,} layers, or others "
            "than numbers from 0 to 1,000,000.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return values[: config.layers]
