"""glm4: norms before and after attention and MLP, RoPE of half the channels, gate and up fused.

GLM-4-0414, GLM-Z1, and the language models of GLM-4.1V and GLM-OCR. In those that read images
the files have their channels in another order, for RoPE by sections; to texts all sections are alike.
"""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import read_config
from engine.models.layers import Block, Decoder
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    sections = file.metadata.get("glm4.rope.dimension_sections")
    by_sections = any(sections) if isinstance(sections, list) else bool(sections)
    rotary = rope(file, config, weights, context, interleaved=not by_sections)
    blocks = tuple(
        Block(
            attention_norm=norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=attention(weights, config, index, rotary),
            mlp_norm=norm(weights, config, f"blk.{index}.ffn_norm", config.width),
            mlp=gated_mlp(weights, config, index, Activation.SILU),
            after_attention=norm(weights, config, f"blk.{index}.post_attention_norm", config.width),
            after_mlp=norm(weights, config, f"blk.{index}.post_ffw_norm", config.width),
        )
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)
