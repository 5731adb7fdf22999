"""gemma4: layers with and without a window differ in head width, heads and RoPE; values are normed.

The small models (E2B, E4B) have an embedding of each token for every layer, and their last layers
read the keys and values of the last layer before them that has a window like they do, or none. The
mixture (26B-A4B) adds experts to a dense feed-forward. Layers without a window may have no values:
their values are the keys.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.models.builder import (
    decoder,
    experts,
    gated_mlp,
    norm,
    projection,
    projections,
)
from engine.models.config import (
    Config,
    layer_configs,
    per_layer,
    read_config,
    sliding_layers,
    sliding_window,
)
from engine.models.feed_forward import Branch, GatedMLP, ParallelMLPs
from engine.models.layers import Block, Decoder, LayerInput, LayerInputs
from engine.models.mixers import Attention
from engine.models.parts import HeadNorms, Norm, Projection, Rope
from engine.models.rope import rope, rope_frequencies
from engine.models.weights import Weights
from kernels.ops import Activation

_LOCAL_ROPE_BASE = 10_000.0
_DAMAGED = "The file is damaged or made by a faulty converter; get another copy."


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    name, count = config.architecture, config.layers
    local = sliding_layers(file, config, every=6)
    shared = shared_layers(file, local)
    inputs = layer_inputs(file, weights, config)
    rotary = rope(file, config, weights, context, interleaved=False)
    local_width = _width(file, f"{name}.attention.key_length_swa", config.head_width)
    if _width(file, f"{name}.attention.value_length_swa", local_width) != local_width:
        raise ModelFileError(
            f"The keys '{name}.attention.key_length_swa' and '{name}.attention.value_length_swa' "
            "differ; the widths of keys and values must be one number.",
            _DAMAGED,
        )
    local_rope = _local_rope(file, name, local_width, rotary)
    window = sliding_window(file)
    dense = per_layer(file, f"{name}.feed_forward_length", count, config.feed_forward)
    blocks: list[Block] = []
    for index, one in enumerate(layer_configs(file, config)):
        width = local_width if local[index] else config.head_width
        attention = shared_attention(
            weights,
            replace(one, head_width=width),
            index,
            local_rope if local[index] else rotary,
            window=window if local[index] else 0,
            shared=shared[index],
        )
        mlp_config = replace(one, feed_forward=dense[index])
        blocks.append(_block(weights, one, mlp_config, index, attention, inputs))
    cap = file.number(f"{name}.final_logit_softcapping", 0.0, minimum=0.0, maximum=1e6)
    made = decoder(weights, config, tuple(blocks), embedding_scale=config.width**0.5, logit_cap=cap)
    return with_layer_inputs(made, inputs)


def shared_layers(file: GGUFFile, local: list[bool], default: int = 0) -> list[int | None]:
    """For the last layers the earlier one whose keys and values they read; None: their own.

    That is the last one of the same kind, with or without a window, which has its own.
    """
    key = f"{file.string('general.architecture')}.attention.shared_kv_layers"
    count = len(local)
    first = count - file.integer(key, default, minimum=0, maximum=count)
    last = {kind: at for at, kind in enumerate(local[:first])}
    if missing := next((at for at in range(first, count) if local[at] not in last), None):
        raise ModelFileError(
            f"The key '{key}' is {count - first:,}, but no layer before layer {first:,} is of the "
            f"kind of layer {missing:,}, whose keys it could read.",
            _DAMAGED,
        )
    return [None if at < first else last[kind] for at, kind in enumerate(local)]


def shared_attention(
    weights: Weights,
    config: Config,
    index: int,
    rotary: Rope,
    *,
    window: int,
    shared: int | None,
) -> Attention:
    """Attention with normed queries, keys and values, with the keys and values of `shared` if given.

    Some files have the tensors of keys and values that are not used.
    """
    D, C, K, name = config.width, config.head_width, config.kv_heads, f"blk.{index}"
    key: Projection | None
    value: Projection | None
    if weights.has(f"{name}.attn_qkv.weight"):
        rows = (config.heads * C, K * C, K * C)
        query, key, value = projections(weights, f"{name}.attn_qkv", rows, D)
    else:
        query = projection(weights, f"{name}.attn_q", config.heads * C, D)
        key = value = None
        if shared is None:
            key = projection(weights, f"{name}.attn_k", K * C, D)
            if weights.has(f"{name}.attn_v.weight"):
                value = projection(weights, f"{name}.attn_v", K * C, D)
    if shared is not None:
        key = value = None
        weights.ignore(
            f"{name}.attn_k_norm.weight",
            *(
                f"{name}.attn_{letter}.{part}"
                for letter in ("k", "v")
                for part in ("weight", "bias", "scale", "input_scale")
            ),
        )
    ones = weights.beside(name, torch.ones(K, C))
    return Attention(
        query=query,
        key=key,
        value=value,
        output=projection(weights, f"{name}.attn_output", D, config.heads * C),
        rope=replace(rotary, frequencies=weights.beside(name, rotary.frequencies)),
        head_width=C,
        scale=1.0,
        query_norm=norm(weights, config, f"{name}.attn_q_norm", C),
        key_norm=None if key is None else norm(weights, config, f"{name}.attn_k_norm", C),
        value_norm=None if key is None else HeadNorms(ones, config.epsilon, centred=False),
        window=window,
        shared=shared,
    )


def with_layer_inputs(made: Decoder, inputs: LayerInputs | None) -> Decoder:
    """A decoder with embeddings for its layers, whose projection adapters can change."""
    if inputs is None:
        return made
    rows, columns = inputs.projection.weight.shape
    shapes = {**made.base.shapes, inputs.projection.name: (rows, columns)}
    return replace(made, layer_inputs=inputs, base=replace(made.base, shapes=shapes))


def layer_inputs(file: GGUFFile, weights: Weights, config: Config) -> LayerInputs | None:
    """The embeddings for single layers; None: the model has none."""
    key = f"{config.architecture}.embedding_length_per_layer_input"
    P = file.integer(key, 0, minimum=0, maximum=65_536)
    if not P:
        return None
    L, D = config.layers, config.width
    weight = weights.vector("per_layer_proj_norm.weight", P).expand(L, P)
    return LayerInputs(
        table=weights.file_table("per_layer_token_embd.weight", config.vocabulary, L * P),
        projection=projection(weights, "per_layer_model_proj", L * P, D),
        norm=HeadNorms(weight, config.epsilon, centred=False),
        table_scale=P**0.5,
        projection_scale=D**-0.5,
        scale=2**-0.5,
    )


def layer_input(weights: Weights, config: Config, index: int, inputs: LayerInputs) -> LayerInput:
    """What block `index` does with its own embedding of the token."""
    name, D, P = f"blk.{index}", config.width, inputs.width
    return LayerInput(
        layer=index,
        gate=projection(weights, f"{name}.inp_gate", P, D),
        output=projection(weights, f"{name}.proj", D, P),
        norm=norm(weights, config, f"{name}.post_norm", D),
        activation=Activation.GELU_TANH,
    )


def _width(file: GGUFFile, key: str, default: int) -> int:
    width = file.integer(key, default, minimum=2, maximum=65_536)
    if width % 2:
        raise ModelFileError(f"The key '{key}' is {width:,}, which must be even.", _DAMAGED)
    return width


def _local_rope(file: GGUFFile, name: str, width: int, other: Rope) -> Rope:
    """The RoPE of layers with a window: another base, not scaled."""
    key = f"{name}.rope.dimension_count_swa"
    rotated = _width(file, key, width)
    if rotated > width:
        raise ModelFileError(
            f"The key '{key}' is {rotated:,}, but heads with a window have {width:,} channels.",
            _DAMAGED,
        )
    base = file.number(f"{name}.rope.freq_base_swa", _LOCAL_ROPE_BASE, minimum=1.0, maximum=1e12)
    return replace(other, frequencies=rope_frequencies(base, rotated), scale=1.0)


def _block(
    weights: Weights,
    config: Config,
    dense_config: Config,
    index: int,
    attention: Attention,
    inputs: LayerInputs | None,
) -> Block:
    """A block; `dense_config` has the feed-forward width beside the experts."""
    name, D = f"blk.{index}", config.width
    before = norm(weights, config, f"{name}.ffn_norm", D)
    mlp: GatedMLP | ParallelMLPs
    mlp = gated_mlp(weights, dense_config, index, Activation.GELU_TANH)
    is_mixture = weights.has(f"{name}.ffn_gate_inp.weight")
    if is_mixture:
        mlp = _with_experts(weights, config, index, mlp, before)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention,
        mlp_norm=None if is_mixture else before,
        mlp=mlp,
        after_attention=norm(weights, config, f"{name}.post_attention_norm", D),
        after_mlp=norm(weights, config, f"{name}.post_ffw_norm", D),
        layer_input=None if inputs is None else layer_input(weights, config, index, inputs),
        output_scale=weights.scalar(f"{name}.layer_output_scale.weight"),
    )


def _with_experts(
    weights: Weights, config: Config, index: int, dense: GatedMLP, before: Norm
) -> ParallelMLPs:
    """A dense feed-forward and experts, whose router reads the stream by a norm of its own."""
    name, D = f"blk.{index}", config.width
    if not config.experts:
        raise ModelFileError(
            f"The file has the tensor '{name}.ffn_gate_inp.weight' of experts, but no key "
            f"'{config.architecture}.expert_count'.",
            _DAMAGED,
        )
    # Its tensor `scale` is no factor of the product: it multiplies the channels of the input.
    router = f"{name}.ffn_gate_inp"
    weight = weights.vector(f"{router}.scale", D) * D**-0.5
    mixture = experts(
        weights,
        config,
        index,
        Activation.GELU_TANH,
        router=Projection(
            f"{router}.weight", weights.matrix(f"{router}.weight", config.experts, D)
        ),
    )
    mixture = replace(mixture, router_norm=Norm(weight, config.epsilon))
    dense_after, after = (
        norm(weights, config, f"{name}.post_ffw_norm_{number}", D) for number in (1, 2)
    )
    own = norm(weights, config, f"{name}.pre_ffw_norm_2", D)
    return ParallelMLPs((Branch(dense, before, dense_after), Branch(mixture, own, after)))
