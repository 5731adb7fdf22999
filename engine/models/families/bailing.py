"""bailingmoe2 and bailingmoe3: mixtures with shared experts after dense layers.

Ling 2 and Ring 2: llama blocks with query and key norms. Ling 3: delta nets whose decay differs by
channel (KDA), and in some layers latent attention with a gate for each head.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, projection
from engine.models.config import Config, per_layer, read_config
from engine.models.feed_forward import Experts, GatedMLP
from engine.models.latent import latent_attention, read_widths
from engine.models.layers import Block, Decoder
from engine.models.mixers import DeltaNet, OutputGate
from engine.models.mixtures import mixture_block
from engine.models.parts import Convolution, HeadNorms
from engine.models.rope import rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops import Activation

_LEAST_LIMIT = 1e-6


def build_bailingmoe2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    routing = read_routing(file, config)
    shared = _shared_width(file) or config.feed_forward
    shared *= file.integer("bailingmoe2.expert_shared_count", minimum=0, maximum=4_096)
    weights.ignore_scales("ffn")  # llama.cpp does not apply them
    blocks = tuple(
        mixture_block(
            weights,
            config,
            index,
            attention(weights, config, index, rotary, qk_norm=1),
            dense,
            routing,
            shared=shared,
        )
        for index, dense in enumerate(dense_layers(file, config))
    )
    return decoder(weights, config, blocks)


def build_bailingmoe3(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; layers with 0 key/value heads are recurrent."""
    config = read_config(file)
    name = config.architecture
    widths = read_widths(file, config)
    rotary = rope(file, config, weights, context, interleaved=not _has_sections(file))
    kv_heads = per_layer(file, f"{name}.attention.head_count_kv", config.layers, config.kv_heads)
    routing = read_routing(file, config)
    count = file.integer(f"{name}.expert_shared_count", minimum=0, maximum=4_096)
    shared = _shared_width(file) or config.feed_forward * max(count, 1)
    for part in ("attn", "ffn", "ssm"):
        weights.ignore_scales(part)  # llama.cpp does not apply them
    limits, shared_limits = (
        _limits(file, f"{name}.swiglu_clamp_{part}", config.layers) for part in ("exp", "shexp")
    )
    blocks: list[Block] = []
    for index, dense in enumerate(dense_layers(file, config)):
        if kv_heads[index]:
            gate = projection(weights, f"blk.{index}.attn_gate", config.heads, config.width)
            mixer = replace(
                latent_attention(weights, config, index, rotary, widths, widths.key**-0.5),
                gate=OutputGate(gate, Activation.SIGMOID),
            )
        else:
            mixer = _delta_net(file, weights, config, index)
        block = mixture_block(weights, config, index, mixer, dense, routing, shared=shared)
        blocks.append(_limited(block, limits[index], shared_limits[index]))
    return decoder(weights, config, tuple(blocks))


def _shared_width(file: GGUFFile) -> int:
    """The stated inner width of one shared expert; 0: not stated."""
    name = file.string("general.architecture")
    key = f"{name}.expert_shared_feed_forward_length"
    return file.integer(key, 0, minimum=0, maximum=1 << 24)


def _has_sections(file: GGUFFile) -> bool:
    """Whether the pairs of RoPE are halves of a head, as in models that also see images."""
    found = file.metadata.get("bailingmoe3.rope.dimension_sections")
    return isinstance(found, list) and [bool(one) for one in found[:2]] == [True, True]


def _limits(file: GGUFFile, key: str, layers: int) -> list[float]:
    """Limits of the activations of each layer; 0: none."""
    found = file.metadata.get(key, 0.0)
    if not isinstance(found, list):
        return [file.number(key, 0.0, minimum=0.0, maximum=1e6)] * layers
    values = [float(one) for one in found if isinstance(one, int | float) and 0 <= one <= 1e6]
    if len(values) < len(found) or len(found) < layers:
        raise ModelFileError(
            f"The key '{key}' has {len(found):,} values for {layers:,} layers, or others than numbers "
            "from 0 on.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return values[:layers]


def _limited(block: Block, limit: float, shared_limit: float) -> Block:
    """A block whose activations have limits: that of experts, and that of all other MLPs."""
    mlp = block.mlp
    if isinstance(mlp, GatedMLP):
        return replace(block, mlp=_cut(mlp, shared_limit))
    assert isinstance(mlp, Experts)
    if isinstance(mlp.shared, GatedMLP):
        mlp = replace(mlp, shared=_cut(mlp.shared, shared_limit))
    if limit > _LEAST_LIMIT:
        mlp = replace(mlp, activation=Activation.SILU_CUT, limit=limit)
    return replace(block, mlp=mlp)


def _cut(mlp: GatedMLP, limit: float) -> GatedMLP:
    if limit <= _LEAST_LIMIT:
        return mlp
    return replace(mlp, activation=Activation.SILU_CUT, limit=limit)


def _delta_net(file: GGUFFile, weights: Weights, config: Config, index: int) -> DeltaNet:
    """Kimi delta attention; its keys and values are equally wide."""
    name, prefix, D, H = f"blk.{index}", config.architecture, config.width, config.heads
    C = file.integer(f"{prefix}.kda.head_dim", minimum=1, maximum=65_536)
    taps = file.integer(f"{prefix}.ssm.conv_kernel", minimum=1, maximum=1 << 12)
    if file.metadata.get(f"{prefix}.kda.safe_gate", True) is not True:
        raise UnsupportedModel(
            f"The key '{prefix}.kda.safe_gate' says that decays have no lower bound, which this "
            "version does not support.",
            "Choose another model of this family.",
        )
    weights.ignore(*(f"{name}.attn_{letter}.bias" for letter in "qkv"))  # llama.cpp has none
    query, key, value = (projection(weights, f"{name}.attn_{letter}", H * C, D) for letter in "qkv")
    convolutions = [
        Convolution(
            weights.table(f"{name}.ssm_conv1d_{letter}.weight", H * C, taps),
            activation=Activation.SILU,
        )
        for letter in "qkv"
    ]
    rate = weights.table(f"{name}.ssm_a", H, 1)
    normed = weights.vector(f"{name}.ssm_norm.weight", C)
    return DeltaNet(
        query=query,
        key=key,
        value=value,
        convolutions=(convolutions[0], convolutions[1], convolutions[2]),
        decay=projection(weights, f"{name}.ssm_f_a", H * C, D),
        strength=projection(weights, f"{name}.ssm_beta", H, D),
        rate=rate.flatten(),
        decay_bias=weights.vector(f"{name}.ssm_dt.bias", H * C),
        key_width=C,
        value_width=C,
        epsilon=config.epsilon,
        norm=HeadNorms(normed.expand(H, C), config.epsilon, centred=False),
        gate=projection(weights, f"{name}.ssm_g_a", H * C, D),
        activation=Activation.SIGMOID,
        output=projection(weights, f"{name}.attn_output", D, H * C),
        floor=file.number(f"{prefix}.kda.gate_lower_bound", minimum=-1e3, maximum=-1e-6),
    )
