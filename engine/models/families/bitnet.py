"""bitnet: weights of three values, with norms before the last product of attention and MLP.

Every product has a factor in the file, unless it is part of the weights.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import Config, read_config
from engine.models.layers import Block, Decoder
from engine.models.parts import Rope
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation

_ACTIVATIONS = {"silu": Activation.SILU, "relu2": Activation.RELU_SQUARED}
# BitNet b1.58 2B4T has another activation than the first models; its files do not state it.
_LAYERS_OF_2B4T, _WIDTH_OF_2B4T = 30, 2_560


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    activation = _activation(file, config)
    blocks = tuple(
        _block(weights, config, index, rotary, activation) for index in range(config.layers)
    )
    return decoder(weights, config, blocks)


def _activation(file: GGUFFile, config: Config) -> Activation:
    is_2b4t = (config.layers, config.width) == (_LAYERS_OF_2B4T, _WIDTH_OF_2B4T)
    key = f"{config.architecture}.hidden_activation"
    name = file.string(key, "relu2" if is_2b4t else "silu")
    if name not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"The key '{key}' is {name!r}, an activation this version does not support here.",
            "Choose another model.",
        )
    return _ACTIVATIONS[name]


def _block(
    weights: Weights, config: Config, index: int, rotary: Rope, activation: Activation
) -> Block:
    D, name = config.width, f"blk.{index}"
    mixed = norm(weights, config, f"{name}.attn_sub_norm", config.heads * config.head_width)
    inner = norm(weights, config, f"{name}.ffn_sub_norm", config.feed_forward)
    mlp = gated_mlp(weights, config, index, activation)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=replace(attention(weights, config, index, rotary), output_norm=mixed),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=replace(mlp, inner_norm=inner),
    )
