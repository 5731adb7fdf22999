"""nemotron_h, nemotron_h_moe: every layer is attention, Mamba-2 or a feed-forward alone.

Nemotron-H, Nemotron Nano 2 and Nemotron 3. Feed-forwards have the squared ReLU and no gate. Some
experts read and write a smaller vector than the model's, and some models were pruned to another
number and width of experts in every layer.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, mlp, norm, projection
from engine.models.config import Config, layer_configs, per_layer, read_config
from engine.models.feed_forward import MLP, Experts
from engine.models.layers import Block, Decoder
from engine.models.mamba import state_space
from engine.models.mixers import Mixer
from engine.models.rope import no_rope
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Gating, Routing


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    del context
    config = read_config(file)
    key = f"{config.architecture}.feed_forward_length"
    widths = per_layer(file, key, config.layers, 0)  # 0: of a layer with a mixer
    blocks = tuple(
        _block(file, weights, one, index, widths[index])
        for index, one in enumerate(layer_configs(file, config))
    )
    return decoder(weights, config, blocks)


def _block(file: GGUFFile, weights: Weights, config: Config, index: int, width: int) -> Block:
    """A block with a mixer or, if its `width` is not 0, with a feed-forward."""
    before = norm(weights, config, f"blk.{index}.attn_norm", config.width)
    if width:
        made = (_experts if config.experts else _mlp)(file, weights, config, index)
        return Block(attention_norm=None, attention=None, mlp_norm=before, mlp=made)
    mixer: Mixer
    if config.kv_heads:
        scale = file.number(f"{config.architecture}.attention.scale", 0.0, minimum=0.0, maximum=1e6)
        mixer = attention(weights, config, index, no_rope(), scale=scale)
    else:
        mixer = state_space(file, weights, config, index)
    return Block(attention_norm=before, attention=mixer, mlp_norm=None, mlp=None)


def _mlp(file: GGUFFile, weights: Weights, config: Config, index: int) -> MLP:
    del file
    return mlp(weights, config, index, Activation.RELU_SQUARED)


def _experts(file: GGUFFile, weights: Weights, config: Config, index: int) -> Experts:
    name = config.architecture
    if f"{name}.expert_feed_forward_length" not in file.metadata:  # older files state all of them
        config = replace(
            config, feed_forward=config.feed_forward // max(config.experts_per_token, 1)
        )
    if not config.feed_forward or not config.experts_per_token:
        raise ModelFileError(
            f"The layer {index} has experts of {config.feed_forward:,} channels, "
            f"{config.experts_per_token:,} of them for each token; neither may be 0.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    groups, chosen_groups = (
        file.integer(f"{name}.{key}", 1, minimum=0, maximum=config.experts) or 1
        for key in ("expert_group_count", "expert_group_used_count")
    )
    routing = Routing(
        config.experts_per_token,
        Gating.SIGMOID,
        groups=groups,
        chosen_groups=chosen_groups,
        normalized=bool(file.metadata.get(f"{name}.expert_weights_norm", False)),
        scale=file.number(f"{name}.expert_weights_scale", 1.0, minimum=0.0, maximum=1e6) or 1.0,
    )
    latent = file.integer(f"{name}.moe_latent_size", 0, minimum=0, maximum=1 << 20)
    shared = file.integer(f"{name}.expert_shared_feed_forward_length", minimum=1, maximum=1 << 24)
    made = experts(
        weights,
        config,
        index,
        Activation.RELU_SQUARED,
        routing,
        shared=shared,
        has_up=False,
        width=latent,
    )
    if not latent:
        return made
    block, D = f"blk.{index}", config.width
    return replace(
        made,
        before=projection(weights, f"{block}.ffn_latent_down", latent, D),
        after=projection(weights, f"{block}.ffn_latent_up", D, latent),
    )
