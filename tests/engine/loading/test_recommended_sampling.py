"""The sampling that a model file recommends, from its `general.sampling.*` keys."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tiny
from engine import Failed, LoadModel, ModelLoaded, Sampling
from engine.loading.loader import load
from engine.loading.recommended_sampling import recommended_sampling
from engine_bench import Bench

KEYS = {
    "general.sampling.temp": 0.6,
    "general.sampling.top_k": 20,
    "general.sampling.top_p": 0.9,
    "general.sampling.min_p": 0.01,
    "general.sampling.xtc_probability": 0.25,
    "general.sampling.xtc_threshold": 0.2,
    "general.sampling.penalty_last_n": 128,
    "general.sampling.penalty_repeat": 1.1,
    "general.sampling.mirostat": 2,
    "general.sampling.mirostat_tau": 4.0,
    "general.sampling.mirostat_eta": 0.2,
}
EVERYTHING = Sampling(
    temperature=0.6, top_k=20, top_p=0.9, min_p=0.01, xtc_probability=0.25, xtc_threshold=0.2,
    penalty_window=128, repeat_penalty=1.1, mirostat=2, mirostat_tau=4.0, mirostat_eta=0.2,
)  # fmt: skip


def test_every_key_is_read() -> None:
    assert recommended_sampling(KEYS) == EVERYTHING


def test_a_file_without_the_keys_recommends_nothing() -> None:
    assert recommended_sampling({"general.name": "tiny"}) is None


def test_the_loaded_model_has_it(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "tiny.gguf", metadata={"general.sampling.top_k": 7})
    assert load(path).sampling == Sampling(top_k=7)
    assert load(tiny.write(tmp_path / "plain.gguf")).sampling is None


def test_the_event_has_it(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "tiny.gguf", metadata={"general.sampling.top_k": 7})
    bench = Bench()
    bench.engine.send(LoadModel(1, path))
    loaded = bench.until(ModelLoaded, Failed)[-1]
    bench.engine.stop()
    assert isinstance(loaded, ModelLoaded)
    assert loaded.sampling == Sampling(top_k=7)


@pytest.mark.parametrize("bad", ["0.6", True, math.nan, -1.0, None, [0.5]])
def test_invalid_values_are_left_out(bad: object) -> None:
    assert recommended_sampling({"general.sampling.temp": bad}) is None
    found = recommended_sampling({"general.sampling.temp": bad, "general.sampling.top_k": 5})
    assert found == Sampling(top_k=5)


@pytest.mark.parametrize("bad", [20.5, -3, math.inf, math.nan])
def test_a_whole_number_is_wanted(bad: float) -> None:
    assert recommended_sampling({"general.sampling.top_k": bad}) is None


def test_numbers_may_have_another_type() -> None:
    found = recommended_sampling({"general.sampling.top_k": 20.0, "general.sampling.temp": 1})
    assert found == Sampling(top_k=20, temperature=1.0)
    assert found is not None
    assert (type(found.top_k), type(found.temperature)) == (int, float)


def test_steps_that_the_sequence_does_not_name_are_off() -> None:
    sequence = {"general.sampling.sequence": "penalties; top-k;TEMP"}
    assert recommended_sampling(sequence) == Sampling(top_p=1.0, min_p=0.0)
    sequence = {"general.sampling.sequence": "dry;top_n_sigma;nucleus;typ_p;min_p;xtc;temperature"}
    assert recommended_sampling(KEYS | sequence) == Sampling(
        temperature=0.6, top_k=0, top_p=0.9, min_p=0.01, xtc_probability=0.25, xtc_threshold=0.2,
        penalty_window=128, repeat_penalty=1.0, mirostat=2, mirostat_tau=4.0, mirostat_eta=0.2,
    )  # fmt: skip


@pytest.mark.parametrize("bad", ["", "unknown;other", 5, ["top_k"]])
def test_an_unknown_sequence_changes_nothing(bad: object) -> None:
    assert recommended_sampling({"general.sampling.sequence": bad}) is None
