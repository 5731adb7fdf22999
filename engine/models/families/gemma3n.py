"""gemma3n: four residual streams (AltUp), an embedding of each token for every layer, shared keys.

The last layers read the keys and values of earlier ones, as in Gemma 4. In the first layers only the
highest inner channels of the feed-forward count.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.altup import AltUp, AltUpLayer
from engine.models.builder import decoder, gated_mlp, norm, projection
from engine.models.config import (
    Config,
    layer_configs,
    read_config,
    sliding_layers,
    sliding_window,
)
from engine.models.families.gemma4 import (
    layer_input,
    layer_inputs,
    shared_attention,
    shared_layers,
    with_layer_inputs,
)
from engine.models.layers import Block, Decoder
from engine.models.parts import Projection
from engine.models.rope import rope, rope_frequencies
from engine.models.weights import Weights
from kernels.ops import Activation

_LOCAL_ROPE_BASE = 10_000.0
_OWN_KEYS = 20  # layers with keys of their own, where a file does not say how many share
# Where a file does not state it: the first layers keep 5 % of the inner channels.
_SPARSE_LAYERS, _DEVIATIONS = 10, 1.6448533535003662
_LEAST_SQUARE = 1e-5  # of a new stream, before it is scaled like the first
_DAMAGED = "The file is damaged or made by a faulty converter; get another copy."


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    name, D = config.architecture, config.width
    count = _stream_count(file, name)
    local = sliding_layers(file, config, every=5)
    shared = shared_layers(file, local, max(config.layers - _OWN_KEYS, 0))
    inputs = layer_inputs(file, weights, config)
    if inputs is None:
        raise ModelFileError(
            f"The key '{name}.embedding_length_per_layer_input' is missing or 0; gemma3n models "
            "have embeddings for every layer.",
            _DAMAGED,
        )
    rotary = rope(file, config, weights, context, interleaved=False)
    base = file.number(f"{name}.rope.freq_base_swa", _LOCAL_ROPE_BASE, minimum=1.0, maximum=1e12)
    frequencies = rope_frequencies(base, config.rotary_dim)
    local_rope = replace(rotary, frequencies=frequencies, scale=1.0)
    window, deviations = sliding_window(file), _deviations(file, config)
    blocks: list[Block] = []
    for index, one in enumerate(layer_configs(file, config)):
        block = f"blk.{index}"
        attention = shared_attention(
            weights,
            one,
            index,
            local_rope if local[index] else rotary,
            window=window if local[index] else 0,
            shared=shared[index],
        )
        mlp = gated_mlp(weights, one, index, Activation.GELU_TANH)
        blocks.append(
            Block(
                attention_norm=norm(weights, config, f"{block}.attn_norm", D),
                attention=attention,
                mlp_norm=norm(weights, config, f"{block}.ffn_norm", D),
                mlp=replace(mlp, deviations=deviations[index]),
                after_attention=norm(weights, config, f"{block}.post_attention_norm", D),
                after_mlp=norm(weights, config, f"{block}.post_ffw_norm", D),
                layer_input=layer_input(weights, config, index, inputs),
                altup=_altup_layer(weights, config, index, count),
            )
        )
    cap = file.number(f"{name}.final_logit_softcapping", 30.0, minimum=0.0, maximum=1e6)
    made = decoder(weights, config, tuple(blocks), embedding_scale=D**0.5, logit_cap=cap)
    altup = AltUp(
        inputs=_matrices(weights, "altup_proj", count - 1, D),
        outputs=_matrices(weights, "altup_unembd_proj", count - 1, D),
        epsilon=_LEAST_SQUARE,
    )
    return replace(with_layer_inputs(made, inputs), altup=altup)


def _stream_count(file: GGUFFile, name: str) -> int:
    """The number of streams; raises UnsupportedModel if another than the first runs."""
    key = f"{name}.altup.active_idx"
    if active := file.integer(key, 0):
        raise UnsupportedModel(
            f"The key '{key}' is {active:,}: another stream than the first runs through the layers, "
            "which this version does not support.",
            "Choose another model of this family.",
        )
    return file.integer(f"{name}.altup.num_inputs", 4, minimum=2, maximum=64)


def _deviations(file: GGUFFile, config: Config) -> list[float | None]:
    """How many standard deviations above the mean a gate counts, by layer; None: every gate."""
    key, layers = f"{config.architecture}.activation_sparsity_scale", config.layers
    found = file.metadata.get(key)
    if found is None:
        return [_DEVIATIONS if at < _SPARSE_LAYERS else None for at in range(layers)]
    values = found if isinstance(found, list) else []
    made = [float(one) for one in values if isinstance(one, int | float) and one < math.inf]
    if len(made) < len(values) or len(made) < layers:
        raise ModelFileError(
            f"The key '{key}' has {len(values):,} values for {layers:,} layers, or others than "
            "numbers.",
            _DAMAGED,
        )
    return [one if one > -math.inf else None for one in made[:layers]]


def _altup_layer(weights: Weights, config: Config, index: int, count: int) -> AltUpLayer:
    """AltUp and the side path of block `index`."""
    name, D = f"blk.{index}", config.width
    rank = weights.rows(f"{name}.laurel_l.weight") or 1
    routed = norm(weights, config, f"{name}.altup_router_norm", D)
    router = projection(weights, f"{name}.altup_router", count, D)
    correct = projection(weights, f"{name}.altup_correct_coef", count, count)
    return AltUpLayer(
        # The router reads a D-th of the normed stream, and so do adapters of the router.
        norm=replace(routed, weight=routed.weight / D),
        router=router,
        predict=projection(weights, f"{name}.altup_predict_coef", count * count, count),
        correct=replace(correct, bias=weights.beside(name, torch.ones(count))),
        scale=weights.vector(f"{name}.altup_correct_scale.weight", D),
        low=projection(weights, f"{name}.laurel_l", rank, D),
        high=projection(weights, f"{name}.laurel_r", D, rank),
        side_norm=norm(weights, config, f"{name}.laurel_post_norm", D),
        side_scale=2**-0.5,
    )


def _matrices(weights: Weights, name: str, count: int, width: int) -> tuple[Projection, ...]:
    """The matrices of one tensor [count, D, D], to which adapters do not apply."""
    return tuple(
        Projection("", one) for one in weights.heads(f"{name}.weight", count, width, width)
    )
