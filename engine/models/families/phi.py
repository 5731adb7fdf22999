"""phi2: layer norms, parallel attention and MLP, partial RoPE; phi3: llama's, fused tensors.

phimoe is phi3 as a mixture, with biases of norms, attention and head.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, layer_norm, mlp, norm, pre_norm_block
from engine.models.config import Config, read_config, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.parts import Norm
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build_phi2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        Block(
            attention_norm=layer_norm(weights, config, f"blk.{index}.attn_norm", config.width),
            attention=attention(weights, config, index, rotary),
            mlp_norm=None,
            mlp=mlp(weights, config, index, Activation.GELU_TANH),
        )
        for index in range(config.layers)
    )
    last_norm = layer_norm(weights, config, "output_norm", config.width)
    return decoder(weights, config, blocks, last_norm=last_norm)


def build_phi3(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """QKV and gate/up are fused tensors; RoPE frequencies have short- and long-context divisors."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    window = sliding_window(file)
    blocks = tuple(
        pre_norm_block(weights, config, index, rotary, window=window)
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)


def build_phimoe(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Norms, routing and shares are those of llama.cpp, which the files are made for.

    The model was trained with layer norms, and with shares that are not divided by their sum.
    """
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    window = sliding_window(file)
    blocks = tuple(
        Block(
            attention_norm=_biased_norm(weights, config, f"blk.{index}.attn_norm"),
            attention=attention(weights, config, index, rotary, window=window),
            mlp_norm=_biased_norm(weights, config, f"blk.{index}.ffn_norm"),
            mlp=experts(weights, config, index, Activation.SILU),
        )
        for index in range(config.layers)
    )
    last_norm = _biased_norm(weights, config, "output_norm")
    return decoder(weights, config, blocks, last_norm=last_norm)


def _biased_norm(weights: Weights, config: Config, name: str) -> Norm:
    """An RMS norm with a bias."""
    plain = norm(weights, config, name, config.width)
    return replace(plain, bias=weights.vector(f"{name}.bias", config.width))
