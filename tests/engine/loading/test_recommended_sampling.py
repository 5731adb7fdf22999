"""The sampling that a model file recommends, from its `general.sampling.*` keys."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tiny
from engine import Failed, Load, ModelLoaded, Sampling
from engine.loading.loader import load
from engine.loading.recommended_sampling import Recommendation, recommendation, recommended_sampling
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
    found = load(path)
    assert (found.sampling, found.recommended.fields) == (Sampling(top_k=7), ("top_k",))
    assert load(tiny.write(tmp_path / "plain.gguf")).sampling is None


def test_the_event_has_it(tmp_path: Path) -> None:
    keys = {"general.sampling.top_k": 7, "general.sampling.temp": math.nan}
    path = tiny.write(tmp_path / "tiny.gguf", metadata=keys)
    bench = Bench()
    bench.send(1, Load(path))
    loaded = bench.until(ModelLoaded, Failed)[-1]
    bench.engine.stop()
    assert isinstance(loaded, ModelLoaded)
    assert (loaded.sampling, loaded.sampling_fields) == (Sampling(top_k=7), ("top_k",))
    assert loaded.sampling_unusable == ("general.sampling.temp: nan",)


@pytest.mark.parametrize("bad", ["0.6", True, math.nan, math.inf, [0.5], 1e9])
def test_values_without_a_meaning_are_left_out_and_named(bad: object) -> None:
    assert recommended_sampling({"general.sampling.temp": bad}) is None
    found = recommendation({"general.sampling.temp": bad, "general.sampling.top_k": 5})
    name = f"general.sampling.temp: {bad}"
    assert found == Recommendation(Sampling(top_k=5), ("top_k",), (name,))


@pytest.mark.parametrize("bad", [20.5, math.inf, math.nan])
def test_a_whole_number_is_wanted(bad: float) -> None:
    found = recommendation({"general.sampling.top_k": bad})
    assert (found.fields, len(found.unusable)) == ((), 1)


# What each value means in llama.cpp: beyond the end of a range it means that end.
@pytest.mark.parametrize(
    ("key", "value", "field", "meaning"),
    [
        ("top_k", -1, "top_k", 0),
        ("top_k", -7, "top_k", 0),
        ("top_k", 0, "top_k", 0),
        ("top_k", 100_000, "top_k", 100_000),
        ("temp", 0.0, "temperature", 0),
        ("temp", -1.0, "temperature", 0),
        ("top_p", 0.0, "top_p", 0),
        ("top_p", -1.0, "top_p", 0),
        ("top_p", 1.5, "top_p", 1),
        ("min_p", -1.0, "min_p", 0),
        ("min_p", 2.0, "min_p", 1),
        ("xtc_probability", -1.0, "xtc_probability", 0),
        ("xtc_threshold", 2.0, "xtc_threshold", 1),
        ("penalty_last_n", -1, "penalty_window", -1),
        ("penalty_last_n", 0, "penalty_window", 0),
        ("penalty_repeat", 1.0, "repeat_penalty", 1),
        ("mirostat", 0, "mirostat", 0),
    ],
)
def test_an_edge_value_has_its_meaning(key: str, value: float, field: str, meaning: float) -> None:
    found = recommendation({f"general.sampling.{key}": value})
    assert getattr(found.sampling, field) == meaning
    assert (found.fields, found.unusable) == ((field,), ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("penalty_last_n", -2), ("penalty_repeat", 0.0), ("penalty_repeat", -1.0), ("mirostat", 3),
        ("mirostat_tau", -1.0), ("mirostat_eta", 2.0), ("mirostat", -1), ("sequence", "?"),
    ],
)  # fmt: skip
def test_a_value_that_no_program_can_use_is_named(key: str, value: object) -> None:
    found = recommendation({f"general.sampling.{key}": value})
    assert found == Recommendation(Sampling(), (), (f"general.sampling.{key}: {value}",))


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


@pytest.mark.parametrize("text", ["temperature;top_k;top_p;min_p", "top_k;min_p;adaptive_p"])
def test_a_sequence_that_cannot_be_followed_is_named(text: str) -> None:
    found = recommendation({"general.sampling.sequence": text})
    assert found.unusable == (f"general.sampling.sequence: {text}",)
    assert found.sampling.top_k == Sampling().top_k  # its choice of steps counts nevertheless
    assert (found.sampling.top_p == 1) == ("top_p" not in text)


def test_a_sequence_in_the_usual_order_is_followed() -> None:
    text = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
    assert recommendation({"general.sampling.sequence": text}) == Recommendation(Sampling(), (), ())


@pytest.mark.parametrize("bad", ["", "unknown;other", 5, ["top_k"]])
def test_an_unknown_sequence_changes_nothing(bad: object) -> None:
    assert recommended_sampling({"general.sampling.sequence": bad}) is None
