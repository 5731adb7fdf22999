"""command-r and cohere2: parallel attention and MLP after one layer norm, scaled logits.

Command R+, a larger command-r, has a layer norm with separate weights for every query and key head.
In cohere2 three layers of four have RoPE and a sliding window; the fourth has full attention and no
position encoding.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, layer_norm
from engine.models.config import Config, read_config, sliding_layers, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.mixers import Attention
from engine.models.parts import HeadNorms, Norm, Rope
from engine.models.rope import no_rope, rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build_command_r(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=True)
    return _build(file, weights, config, [rotary] * config.layers, [0] * config.layers)


def build_cohere2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary, window = rope(file, config, weights, context, interleaved=True), sliding_window(file)
    local = sliding_layers(file, config, every=4)
    return _build(
        file,
        weights,
        config,
        [rotary if slides else no_rope() for slides in local],
        [window if slides else 0 for slides in local],
    )


def _build(
    file: GGUFFile, weights: Weights, config: Config, ropes: list[Rope], windows: list[int]
) -> Decoder:
    blocks = tuple(
        Block(
            attention_norm=layer_norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=_attention(weights, config, index, ropes[index], windows[index]),
            mlp_norm=None,
            mlp=gated_mlp(weights, config, index, Activation.SILU),
        )
        for index in range(config.layers)
    )
    last_norm = scaled(file, config, layer_norm(weights, config, "output_norm", config.width))
    return decoder(weights, config, blocks, last_norm=last_norm)


def scaled(file: GGUFFile, config: Config, last_norm: Norm) -> Norm:
    """The last norm, whose weight absorbs the scale of the logits: they are linear in its output."""
    scale = file.number(f"{config.architecture}.logit_scale", 1.0, minimum=0.0, maximum=1e6) or 1.0
    return replace(last_norm, weight=last_norm.weight * scale)


def _attention(weights: Weights, config: Config, index: int, rope: Rope, window: int) -> Attention:
    """Attention of a block, with per-head query and key norms where the file has them."""
    plain = attention(weights, config, index, rope, window=window)
    name, C = f"blk.{index}", config.head_width
    if not weights.has(f"{name}.attn_q_norm.weight"):
        return plain
    query, key = (
        HeadNorms(weights.table(f"{name}.attn_{letter}_norm.weight", heads, C), config.epsilon)
        for letter, heads in (("q", config.heads), ("k", config.kv_heads))
    )
    return replace(plain, query_norm=query, key_norm=key)
