"""qwen35, qwen35moe, qwen3next: gated delta nets with gated attention in every fourth layer.

Qwen3.5 to 3.8, Bonsai-27B, Bonsai 2 and Qwen3-Next. The mixtures have an expert that all tokens run
through.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.models.builder import (
    attention,
    decoder,
    experts,
    gated_mlp,
    interleaved,
    norm,
    projection,
    projections,
)
from engine.models.config import Config, per_layer, read_config
from engine.models.feed_forward import Experts, GatedMLP
from engine.models.layers import Block, Decoder
from engine.models.mixers import Attention, DeltaNet, OutputGate
from engine.models.parts import Convolution, HeadNorms, Projection, Rope
from engine.models.rope import rope
from engine.models.weights import Weights
from kernels.ops import Activation


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    recurrent = _recurrent_layers(file, config)
    shared = 0
    if config.experts:
        key = f"{config.architecture}.expert_shared_feed_forward_length"
        shared = file.integer(key, 0, minimum=0, maximum=1 << 24) or file.integer(
            f"{config.architecture}.feed_forward_length", minimum=1, maximum=1 << 24
        )
    blocks = tuple(
        _block(file, weights, config, index, None if recurrent[index] else rotary, shared)
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks)


def _recurrent_layers(file: GGUFFile, config: Config) -> list[bool]:
    """Which layers are recurrent: all but each fourth, unless the file says otherwise."""
    name = config.architecture
    key = f"{name}.attention.recurrent_layers"
    if key in file.metadata:
        return [bool(one) for one in per_layer(file, key, config.layers, 0, maximum=1)]
    every = file.integer(f"{name}.full_attention_interval", 4, minimum=1, maximum=4_096)
    return [(index + 1) % every != 0 for index in range(config.layers)]


def _block(
    file: GGUFFile,
    weights: Weights,
    config: Config,
    index: int,
    rotary: Rope | None,
    shared: int,
) -> Block:
    """A block with attention, or without RoPE with a delta net."""
    name, D = f"blk.{index}", config.width
    mlp: GatedMLP | Experts
    if config.experts:
        mlp = experts(weights, config, index, Activation.SILU, shared=shared)
    else:
        mlp = gated_mlp(weights, config, index, Activation.SILU)
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=_delta_net(file, weights, config, index)
        if rotary is None
        else _attention(weights, config, index, rotary),
        mlp_norm=norm(weights, config, f"{name}.post_attention_norm", D),
        mlp=mlp,
    )


def _attention(weights: Weights, config: Config, index: int, rotary: Rope) -> Attention:
    """Attention whose query tensor has, for every head, its query and the gate of its output."""
    name, heads, C = f"blk.{index}.attn_q", config.heads, config.head_width
    query, gate = interleaved(weights, name, heads, (C, C), config.width)
    made = attention(weights, config, index, rotary, qk_norm=1, query=query)
    return replace(made, gate=OutputGate(gate, Activation.SIGMOID))


def _delta_net(file: GGUFFile, weights: Weights, config: Config, index: int) -> DeltaNet:
    name, D = f"blk.{index}", config.width
    prefix = f"{config.architecture}.ssm"
    taps, inner, C, H, K = (
        file.integer(f"{prefix}.{key}", minimum=1, maximum=1 << 20)
        for key in ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")
    )
    if inner % H or H % K:
        raise ModelFileError(
            f"{H} recurrent heads cannot share {inner} channels and {K} key heads evenly.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    keys, V = K * C, inner // H
    if weights.has(f"{name}.attn_qkv.weight") or not weights.has(f"{name}.ssm_in.weight"):
        query, key, value = projections(weights, f"{name}.attn_qkv", (keys, keys, inner), D)
        weights.ignore(*(f"{name}.ssm_in.{part}" for part in ("weight", "scale", "input_scale")))
        gate = projection(weights, f"{name}.attn_gate", inner, D)
    else:  # of older files: by key head
        rows = (C, C, inner // K, inner // K)
        query, key, value, gate = interleaved(weights, f"{name}.ssm_in", K, rows, D)
    convolved = weights.table(f"{name}.ssm_conv1d.weight", 2 * keys + inner, taps)
    parts = [
        Convolution(one.contiguous(), activation=Activation.SILU)
        for one in convolved.split((keys, keys, inner))
    ]
    output = _output(weights, config, f"{name}.ssm_out", inner, (H // K, K))
    if config.architecture == "qwen3next":  # llama.cpp does not apply these factors
        query, key, value, gate, output = (
            replace(one, scale=1.0) for one in (query, key, value, gate, output)
        )
    strength, decay = _strength_and_decay(weights, name, H, K, D)
    normed = weights.vector(f"{name}.ssm_norm.weight", V)
    return DeltaNet(
        query=query,
        key=key,
        value=value,
        convolutions=(parts[0], parts[1], parts[2]),
        decay=decay,
        strength=strength,
        rate=weights.vector(f"{name}.ssm_a", H),
        decay_bias=weights.vector(f"{name}.ssm_dt.bias", H),
        key_width=C,
        value_width=V,
        epsilon=config.epsilon,
        norm=HeadNorms(normed.expand(H, V), config.epsilon, centred=False),
        gate=gate,
        activation=Activation.SILU,
        output=output,
        tiled=config.architecture != "qwen3next",
    )


def _output(
    weights: Weights, config: Config, name: str, inner: int, heads: tuple[int, int]
) -> Projection:
    """The output, which Bonsai 2 has by key head although all else is in the order of values."""
    output = projection(weights, name, config.width, inner)
    tiled = config.architecture != "qwen3next"
    if output.rotation is None or not (tiled and weights.rotates_grouped_heads):
        return output
    return replace(output, rotation=replace(output.rotation, heads=heads))


def _strength_and_decay(
    weights: Weights, name: str, heads: int, key_heads: int, width: int
) -> list[Projection]:
    """Of every recurrent head, in two tensors or, by key head, in one."""
    if weights.has(f"{name}.ssm_ba.weight"):
        rows = (heads // key_heads,) * 2
        return interleaved(weights, f"{name}.ssm_ba", key_heads, rows, width)
    return [projection(weights, f"{name}.ssm_{part}", heads, width) for part in ("beta", "alpha")]
