"""Routing of mixtures from GGUF metadata, and which layers have a dense feed-forward instead."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.config import Config, per_layer
from kernels.ops.routing import Gating, Routing

_GATINGS = {1: Gating.SOFTMAX, 2: Gating.SIGMOID, 3: Gating.SOFTMAX_OF_CHOSEN}


def read_routing(
    file: GGUFFile, config: Config, gating: Gating | None = None, *, normalized: bool = False
) -> Routing:
    """How the file's mixtures choose experts; `gating` and `normalized` where it does not say.

    Without a `gating` the file must name one. Raises ModelFileError or UnsupportedModel naming the
    faulty key.
    """
    name = config.architecture
    key = f"{name}.expert_gating_func"
    if gating is None or file.integer(key, 0, minimum=0, maximum=255):
        number = file.integer(key, minimum=1, maximum=255)
        if number not in _GATINGS:
            raise UnsupportedModel(
                f"The key '{key}' is {number}, a way to choose experts this version does not support.",
                "Choose another model of this family, or update the program.",
            )
        gating = _GATINGS[number]
    norm_key = f"{name}.expert_weights_norm"
    groups, chosen_groups = _groups(file, config)
    return Routing(
        config.experts_per_token,
        gating,
        groups=groups,
        chosen_groups=chosen_groups,
        normalized=bool(file.metadata.get(norm_key, normalized)),
        scale=file.number(f"{name}.expert_weights_scale", 1.0, minimum=0.0, maximum=1e6) or 1.0,
    )


def _groups(file: GGUFFile, config: Config) -> tuple[int, int]:
    """The number of groups of experts, and of those that experts are chosen from."""
    name, experts = config.architecture, config.experts
    groups = file.integer(f"{name}.expert_group_count", 1, minimum=0, maximum=max(experts, 1)) or 1
    if groups == 1:
        return 1, 1
    key = f"{name}.expert_group_used_count"
    chosen = file.integer(key, minimum=1, maximum=groups)
    if experts % groups or experts // groups * chosen < config.experts_per_token:
        raise ModelFileError(
            f"{chosen} of {groups} groups cannot share {experts} experts, of which a token has "
            f"{config.experts_per_token}.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return groups, chosen


def dense_layers(file: GGUFFile, config: Config) -> list[Config | None]:
    """The configuration of the layers without a mixture; None of those that have one.

    They are the first ones and, where every n-th layer has a mixture, those between these. Raises
    ModelFileError naming the faulty key.
    """
    name, layers = config.architecture, range(config.layers)
    lead, every = config.layers, 1
    if config.experts:
        lead = file.integer(f"{name}.leading_dense_block_count", 0, minimum=0, maximum=4_096)
        every = file.integer(f"{name}.interleave_moe_layer_step", 1, minimum=0, maximum=4_096) or 1
    is_dense = [index < lead or (index + 1) % every != 0 for index in layers]
    if not any(is_dense):
        return [None] * config.layers
    widths = per_layer(file, f"{name}.feed_forward_length", config.layers, config.feed_forward)
    return [
        replace(config, experts=0, feed_forward=max(width, 1)) if dense else None
        for dense, width in zip(is_dense, widths, strict=True)
    ]
