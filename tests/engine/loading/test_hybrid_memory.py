"""Memory plans of models of which some layers have no attention, by outlines of released models."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlines
from engine import CacheType
from engine.core.runner import chunk_size
from engine.gguf.reader import GGUFFile
from engine.loading.memory import MemoryPlan, ModelShape
from engine.loading.placement import place, predict
from engine.loading.preflight import extra_ops, shape
from engine.models.config import read_config
from engine.state.pages import STATE_PAGES

GB = 10**9
# Bytes of keys and values of one token as f16, and of the states of fixed size after it as f32.
_GRANITE = 4 * 4 * 128 * 2 * 2, 36 * 4 * ((3_072 + 2 * 128) * 3 + 48 * 128 * 64)
_NEMOTRON = 4 * 8 * 128 * 2 * 2, 27 * 4 * ((10_240 + 16 * 128) * 3 + 128 * 128 * 80)
_LFM2 = 6 * 8 * 64 * 2 * 2, 18 * 4 * 2 * 2_048
_MAMBA = 0, 64 * 4 * ((8_192 + 16 * 128) * 3 + 128 * 128 * 64)
_FALCON = 24 * 2 * 128 * 2 * 2, 24 * 4 * ((3_072 + 2 * 256) * 3 + 48 * 256 * 64)
REMEMBERED = {
    "granite_h_tiny": _GRANITE,
    "nemotron_nano": _NEMOTRON,
    "lfm2_8b": _LFM2,
    "mamba_codestral": _MAMBA,
    "falcon_h1": _FALCON,
}


def planned(path: Path, context: int, cache: CacheType) -> tuple[MemoryPlan, ModelShape]:
    with GGUFFile.open(path) as file:
        config = read_config(file)
        placement = place(config.layers, "reference")
        plan, _ = predict(file, config, placement, context, cache, available=1_000 * GB)
        return plan, shape(file, config)


@pytest.mark.parametrize("name", outlines.RELEASED)
def test_only_attention_takes_memory_for_each_token(name: str, tmp_path: Path) -> None:
    path = outlines.RELEASED[name]().write(tmp_path / "m.gguf")
    token_bytes, state_bytes = REMEMBERED[name]
    short, _ = planned(path, 1_024, CacheType.F16)
    long, _ = planned(path, 32_768, CacheType.F16)
    assert long.cache_bytes - short.cache_bytes == (32_768 - 1_024) * token_bytes
    assert short.cache_bytes == 1_024 * token_bytes + STATE_PAGES * state_bytes


@pytest.mark.parametrize("name", outlines.RELEASED)
def test_scratch_counts_the_widest_layers(name: str, tmp_path: Path) -> None:
    path = outlines.RELEASED[name]().write(tmp_path / "m.gguf")
    plan, model = planned(path, 4_096, CacheType.F16)
    assert model.hybrid is not None
    chunk = chunk_size(model.layer_weights, place(model.layers, "reference"))
    inner = {"granite_h_tiny": 3_072, "nemotron_nano": 10_240, "lfm2_8b": 2_048}.get(name, 3_072)
    # At least the stream, and of the widest layer its inputs and outputs.
    assert plan.scratch_bytes > 4 * chunk * (2 * model.width + 3 * inner)
    assert plan.scratch_bytes < GB


def test_the_largest_layer_decides_the_chunk(tmp_path: Path) -> None:
    path = outlines.nemotron_nano().write(tmp_path / "m.gguf")
    _, model = planned(path, 4_096, CacheType.F16)
    assert model.layer_weights == 4_480 * (2 * 10_240 + 16 * 128 + 128 + 10_240)  # Mamba-2
    assert model.attentions == ((40, 8, 128),)


def test_experts_count_as_many_as_a_token_passes(tmp_path: Path) -> None:
    path = outlines.granite_h_tiny().write(tmp_path / "m.gguf")
    _, model = planned(path, 4_096, CacheType.F16)
    mixer = 2 * 3_072 + 2 * 128 + 48 + 3_072
    assert model.layer_weights == 1_536 * (mixer + 3 * (6 * 512 + 1_024) + 64)


def test_a_model_without_attention_has_none_to_plan(tmp_path: Path) -> None:
    path = outlines.mamba_codestral().write(tmp_path / "m.gguf")
    _, model = planned(path, 4_096, CacheType.Q8_0)
    assert model.attentions == ()
    assert all(len(states) == 4 for states in model.states)  # three convolutions and a matrix


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("lfm2_8b", ("short_conv",)),
        ("nemotron_nano", ("short_conv", "recurrence")),
    ],
)
def test_kernels_of_layers_without_attention_are_named(
    name: str, ops: tuple[str, ...], tmp_path: Path
) -> None:
    path = outlines.RELEASED[name]().write(tmp_path / "m.gguf")
    with GGUFFile.open(path) as file:
        config = read_config(file)
        placement = place(config.layers, "reference")
        assert extra_ops(file, config, placement) == {"reference": ops}
