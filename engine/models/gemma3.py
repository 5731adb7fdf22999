"""gemma3: text part of Gemma 3; five sliding-window layers, then one that sees everything."""

from __future__ import annotations

from engine.gguf import GGUFFile
from engine.models.config import Config, linear_rope_factor, read_config, rope_frequencies
from engine.models.layers import Block, Decoder, Rope
from engine.models.wiring import attention, decoder, gated_mlp, norm
from engine.weights import Weights
from kernels.ops import Activation

_PATTERN = 6  # every sixth layer is global, where the file does not say otherwise
_LOCAL_ROPE_BASE = 10_000.0
_LAYERS_OF_27B = 62


def build(file: GGUFFile, weights: Weights) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    return decoder(
        weights,
        config,
        _blocks(file, config, weights),
        embedding_scale=config.width**0.5,
        logit_cap=file.number("gemma3.final_logit_softcapping", 0.0, minimum=0.0, maximum=1e6),
    )


def _blocks(file: GGUFFile, config: Config, weights: Weights) -> tuple[Block, ...]:
    """Local layers rotate with their own base and no scaling, global ones with the file's."""
    window = file.integer("gemma3.attention.sliding_window", minimum=1, maximum=1 << 30)
    pattern = file.integer("gemma3.attention.sliding_window_pattern", _PATTERN, minimum=1)
    local_base = file.number("gemma3.rope.freq_base_swa", _LOCAL_ROPE_BASE, minimum=1.0)
    everywhere = rope_frequencies(config.rope_base, config.head_width) / linear_rope_factor(file)
    nearby = rope_frequencies(local_base, config.head_width)
    blocks: list[Block] = []
    for index in range(config.layers):
        sees_all = (index + 1) % pattern == 0
        rope = Rope(everywhere if sees_all else nearby, interleaved=False)
        blocks.append(_block(weights, config, index, rope, 0 if sees_all else window))
    return tuple(blocks)


def _block(weights: Weights, config: Config, index: int, rope: Rope, window: int) -> Block:
    D, name = config.width, f"blk.{index}"
    # The 27B alone divides by its width per head; no key of the file says so.
    divisor = D / config.heads if config.layers == _LAYERS_OF_27B else config.head_width
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm.weight", D),
        attention=attention(
            weights, config, index, rope, normed=True, scale=divisor**-0.5, window=window
        ),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm.weight", D),
        mlp=gated_mlp(weights, config, index, Activation.GELU_TANH),
        after_attention=norm(weights, config, f"{name}.post_attention_norm.weight", D),
        after_mlp=norm(weights, config, f"{name}.post_ffw_norm.weight", D),
    )
