"""apertus: query and key norms, and an MLP without a gate whose activation xIELU is learned."""

from __future__ import annotations

import math

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, norm, projection
from engine.models.config import Config, read_config
from engine.models.feed_forward import MLP, ExpandedIntegral
from engine.models.layers import Block, Decoder
from engine.models.parts import Rope
from engine.models.rope import rope
from engine.models.weights import Weights


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a faulty key or tensor."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        _block(weights, config, index, rotary, unit)
        for index, unit in enumerate(_activations(file, config.layers))
    )
    return decoder(weights, config, blocks)


def _activations(file: GGUFFile, layers: int) -> list[ExpandedIntegral]:
    """The activation of each layer: the file has its factors before their softplus.

    Source: https://arxiv.org/abs/2411.13010 section 4.3
    """
    negative, positive, beta, epsilon = (
        _numbers(file, f"xielu.{key}", layers) for key in ("alpha_n", "alpha_p", "beta", "eps")
    )
    return [
        ExpandedIntegral(
            positive=_softplus(positive[at]),
            negative=beta[at] + _softplus(negative[at]),
            beta=beta[at],
            epsilon=epsilon[at],
        )
        for at in range(layers)
    ]


def _softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


def _numbers(file: GGUFFile, key: str, layers: int) -> list[float]:
    """Values of a key that holds a number for all layers or a list with one for each."""
    found = file.metadata.get(key)
    values = found if isinstance(found, list) else [found] * layers
    numbers = [float(one) for one in values if isinstance(one, int | float) and abs(one) < 1e6]
    if len(numbers) < len(values) or len(numbers) < layers:
        raise ModelFileError(
            f"The key '{key}' is missing, or has not one number for each of the {layers:,} layers.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return numbers


def _block(
    weights: Weights, config: Config, index: int, rotary: Rope, unit: ExpandedIntegral
) -> Block:
    D, F, name = config.width, config.feed_forward, f"blk.{index}"
    up = projection(weights, f"{name}.ffn_up", F, D)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention(weights, config, index, rotary, qk_norm=1),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=MLP(up, projection(weights, f"{name}.ffn_down", D, F), unit),
    )
