"""Blocks with a mixture of experts or, in some layers, a gated MLP."""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import experts, gated_mlp, norm
from engine.models.config import Config
from engine.models.layers import Block
from engine.models.mixers import Mixer
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Routing


def shared_width(file: GGUFFile, config: Config) -> int:
    """The inner width of the experts that all tokens run through, all together; 0: none."""
    key = f"{config.architecture}.expert_shared_count"
    return config.feed_forward * file.integer(key, 0, minimum=0, maximum=4_096)


def mixture_block(
    weights: Weights,
    config: Config,
    index: int,
    mixer: Mixer,
    dense: Config | None,
    routing: Routing,
    *,
    shared: int = 0,
    mlp_norm: str = "ffn_norm",
) -> Block:
    """A block with norms before both parts, and a mixture or, of `dense`, a gated MLP."""
    name = f"blk.{index}"
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", config.width),
        attention=mixer,
        mlp_norm=norm(weights, config, f"{name}.{mlp_norm}", config.width),
        mlp=gated_mlp(weights, dense, index, Activation.SILU)
        if dense
        else experts(weights, config, index, Activation.SILU, routing, shared=shared),
    )
