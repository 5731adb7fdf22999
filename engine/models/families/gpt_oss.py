"""gpt-oss: attention sinks, a sliding window in every second layer, biases, experts of MXFP4.

A head's keys are as wide as what RoPE rotates. The experts gate by a product that is cut at 7, and
their shares are the softmax of the chosen scores alone.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, norm
from engine.models.config import Config, read_config, sliding_layers, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.parts import Rope
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Gating, Routing

_LIMIT = 7.0  # of gates and ups, which no key of the file states


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    config = replace(config, head_width=config.rotary_dim)
    base = file.number(
        f"{config.architecture}.rope.freq_base_swa", config.rope_base, minimum=1.0, maximum=1e12
    )
    local_config = replace(config, rope_base=base)
    # Its training did not round the bounds of YaRN's ramp; llama.cpp does.
    global_rope, local_rope = (
        rope(file, one, weights, context, interleaved=False, whole_bounds=False)
        for one in (config, local_config)
    )
    window = sliding_window(file)
    local = sliding_layers(file, config, every=2)
    blocks = tuple(
        _block(weights, config, index, *((local_rope, window) if slides else (global_rope, 0)))
        for index, slides in enumerate(local)
    )
    return decoder(weights, config, blocks)


def _block(weights: Weights, config: Config, index: int, rotary: Rope, window: int) -> Block:
    name, D = f"blk.{index}", config.width
    plain = attention(weights, config, index, rotary, window=window)
    routing = Routing(config.experts_per_token, Gating.SOFTMAX_OF_CHOSEN)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=replace(plain, sinks=weights.vector(f"{name}.attn_sinks.weight", config.heads)),
        mlp_norm=norm(weights, config, f"{name}.post_attention_norm", D),
        mlp=experts(weights, config, index, Activation.GPT_OSS, routing, limit=_LIMIT),
    )
