"""starcoder: learned positions, multi-query attention; starcoder2: RoPE, grouped queries."""

from __future__ import annotations

from engine.errors import RequestError
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, layer_norm, mlp
from engine.models.config import Config, read_config, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.parts import Rope
from engine.models.rope import no_rope, rope
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.weights.weight import Weight


def build_starcoder(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    if context > config.context:
        raise RequestError(
            f"This model has learned positions for {config.context:,} tokens; a context of "
            f"{context:,} was requested.",
            f"Request at most {config.context:,} tokens.",
        )
    positions = weights.matrix("position_embd.weight", config.context, config.width)
    return _build(weights, config, no_rope(), 0, positions)


def build_starcoder2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    return _build(weights, config, rotary, sliding_window(file), None)


def _build(
    weights: Weights, config: Config, rotary: Rope, window: int, positions: Weight | None
) -> Decoder:
    D = config.width
    blocks = tuple(
        Block(
            attention_norm=layer_norm(weights, config, f"blk.{index}.attn_norm", D),
            attention=attention(weights, config, index, rotary, window=window),
            mlp_norm=layer_norm(weights, config, f"blk.{index}.ffn_norm", D),
            mlp=mlp(weights, config, index, Activation.GELU_TANH),
        )
        for index in range(config.layers)
    )
    last_norm = layer_norm(weights, config, "output_norm", D)
    return decoder(weights, config, blocks, last_norm=last_norm, positions=positions)
