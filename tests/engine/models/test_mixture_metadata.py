"""Routing, dense layers, latent attention and YaRN's magnitudes, as metadata state them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine.errors import EngineError, ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.config import Config, read_config
from engine.models.latent import read_widths
from engine.models.rope import magnitude, rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops.routing import Gating

MIXTURE = {
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 16,
    "expert_gating_func": 2,
}
LATENT = {
    "attention.key_length_mla": 24,
    "attention.value_length_mla": 16,
    "attention.kv_lora_rank": 32,
    "rope.dimension_count": 8,
}


@contextmanager
def opened(tmp_path: Path, **keys: Any) -> Iterator[tuple[GGUFFile, Config]]:
    """A llama file with these keys, and its configuration."""
    metadata = {f"llama.{key}": value for key, value in keys.items()}
    path = tiny.write(tmp_path / "model.gguf", layers=4, metadata=metadata)
    with GGUFFile.open(path) as file:
        yield file, read_config(file)


def test_a_routing_is_read(tmp_path: Path) -> None:
    groups = {"expert_group_count": 4, "expert_group_used_count": 2, "expert_weights_scale": 2.5}
    with opened(tmp_path, **MIXTURE, **groups, expert_weights_norm=True) as (file, config):
        found = read_routing(file, config)
    assert (found.chosen, found.gating, found.groups) == (2, Gating.SIGMOID, 4)
    assert (found.chosen_groups, found.normalized, found.scale) == (2, True, 2.5)


def test_what_a_file_does_not_say_is_given(tmp_path: Path) -> None:
    keys = MIXTURE | {"expert_gating_func": 0, "expert_weights_scale": 0.0}
    with opened(tmp_path, **keys) as (file, config):
        found = read_routing(file, config, Gating.SOFTMAX, normalized=True)
        with pytest.raises(ModelFileError, match="expert_gating_func"):
            read_routing(file, config)
    assert (found.gating, found.groups, found.normalized) == (Gating.SOFTMAX, 1, True)
    assert found.scale == 1.0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"expert_gating_func": 4}, "expert_gating_func' is 4"),
        ({"expert_group_count": 4}, "expert_group_used_count"),
        ({"expert_group_count": 3, "expert_group_used_count": 2}, "2 of 3 groups cannot share 8"),
        ({"expert_group_count": 8, "expert_group_used_count": 1}, "1 of 8 groups cannot share 8"),
    ],
)
def test_a_faulty_routing_is_named(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with (
        opened(tmp_path, **MIXTURE | keys) as (file, config),
        pytest.raises(EngineError, match=message),
    ):
        read_routing(file, config)


@pytest.mark.parametrize(
    ("keys", "widths"),
    [
        ({}, [None] * 4),
        ({"leading_dense_block_count": 2}, [128, 128, None, None]),
        ({"interleave_moe_layer_step": 2}, [128, None, 128, None]),
        ({"leading_dense_block_count": 2, "interleave_moe_layer_step": 2}, [128, 128, 128, None]),
        ({"leading_dense_block_count": 1, "feed_forward_length": [64, 0, 0, 0]}, [64, *[None] * 3]),
        ({"expert_count": 0}, [128] * 4),
    ],
)
def test_layers_without_a_mixture(
    keys: dict[str, Any], widths: list[int | None], tmp_path: Path
) -> None:
    if not keys.get("expert_count", 8):
        keys = keys | {"expert_feed_forward_length": 0}
    with opened(tmp_path, **MIXTURE | keys) as (file, config):
        found = dense_layers(file, config)
    assert [None if one is None else one.feed_forward for one in found] == widths
    assert all(one is None or not one.experts for one in found)


def test_a_list_of_too_few_widths_is_named(tmp_path: Path) -> None:
    keys = MIXTURE | {"leading_dense_block_count": 1, "feed_forward_length": [64, 0]}
    with (
        opened(tmp_path, **keys) as (file, config),
        pytest.raises(ModelFileError, match="feed_forward_length' has 2 values for 4 layers"),
    ):
        dense_layers(file, config)


def test_widths_of_latent_attention_are_read(tmp_path: Path) -> None:
    with opened(tmp_path, **LATENT, **{"attention.q_lora_rank": 48}) as (file, config):
        found = read_widths(file, config)
    assert (found.key, found.plain, found.rotated, found.value) == (24, 16, 8, 16)
    assert (found.latent, found.compressed) == (32, 48)


@pytest.mark.parametrize(
    ("keys", "fault", "message"),
    [
        ({"attention.key_length_mla": 0}, UnsupportedModel, "no key 'llama.attention.key_length_m"),
        ({"attention.key_length_mla": 8}, ModelFileError, "more than the 8 rotated channels"),
        ({"attention.value_length_mla": 0}, ModelFileError, "attention.value_length_mla"),
        ({"attention.kv_lora_rank": 0}, ModelFileError, "attention.kv_lora_rank"),
    ],
)
def test_latent_attention_of_another_form_is_refused(
    keys: dict[str, Any], fault: type[EngineError], message: str, tmp_path: Path
) -> None:
    with opened(tmp_path, **LATENT | keys) as (file, config), pytest.raises(fault, match=message):
        read_widths(file, config)


@pytest.mark.parametrize(
    ("multiplier", "rotated", "whole"),
    [
        (0.0, 1 + 0.1 * math.log(8), 1 + 0.1 * math.log(8)),
        (1.0, 1.0, 1 + 0.1 * math.log(8)),
        (0.5, (1 + 0.1 * math.log(8)) / (1 + 0.05 * math.log(8)), 1 + 0.1 * math.log(8)),
    ],
)
def test_yarn_scales_rotated_channels_and_whole_heads(
    multiplier: float, rotated: float, whole: float, tmp_path: Path
) -> None:
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 32,
        "rope.scaling.yarn_log_multiplier": multiplier,
    }
    with opened(tmp_path, **keys) as (file, config):
        found = rope(file, config, Weights(file, read=False), 256, interleaved=True)
        assert found.scale == pytest.approx(rotated, rel=1e-6)
        assert magnitude(file, config, found) == pytest.approx(whole, rel=1e-6)


def test_a_stated_scale_replaces_the_usual_one_of_yarn(tmp_path: Path) -> None:
    # As in transformers: `attention_factor` of the model's configuration.
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 32,
        "rope.scaling.yarn_attn_factor": 1.5,
    }
    with opened(tmp_path, **keys) as (file, config):
        found = rope(file, config, Weights(file, read=False), 256, interleaved=True)
        assert found.scale == pytest.approx(1.5, rel=1e-6)


def test_an_ignored_tensor_is_as_if_absent(tmp_path: Path) -> None:
    with opened(tmp_path) as (file, _):
        weights = Weights(file, read=False)
        weights.ignore(*file.tensors)
        assert not weights.has("output.weight")
        assert weights.optional_vector("output_norm.weight", 64) is None
        weights.refuse_unused_tensors()
