"""Decoders whose key `attention.causal` is false make embeddings, with llama.cpp's vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

import both_ways
import tiny
from engine.errors import FaultKind, ModelFileError, UnsupportedModel
from engine.loading.inspect import inspect_model
from engine.loading.loader import load
from engine.messages import Pooling
from sessions import finish

IDS = [5, 17, 200, 3, 99, 42, 7, 250, 1, 60, 61]
# The first values that llama-server (b11434) gives with mean pooling and with that of the last token.
RECORDED = {
    "llama-dense": (
        [0.06289, 0.02338, 0.03106, -0.08042, 0.08427, -0.04104],
        [0.00813, -0.05189, -0.09502, -0.05001, 0.06594, -0.04945],
    ),
    "qwen2-dense": (
        [0.08657, 0.05799, 0.02457, -0.11896, 0.05174, -0.05519],
        [0.01554, 0.09435, 0.0535, -0.0145, 0.03252, 0.05051],
    ),
    "llama-moe": (
        [-0.04694, -0.04303, 0.0367, 0.03886, 0.03554, -0.05494],
        [0.05768, -0.08876, 0.02671, 0.01856, -0.02536, 0.05367],
    ),
    "lfm2-dense": (
        [0.02101, 0.01725, 0.00351, -0.06138, -0.00897, -0.05573],
        [-0.00244, -0.02646, -0.08813, 0.07301, -0.05881, -0.0115],
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_vectors_are_llamacpps(name: str, tmp_path: Path) -> None:
    path = both_ways.write(name, tmp_path / "m.gguf")
    model = load(path, embeddings=True)
    assert model.decoder.is_encoder
    assert model.plan.cache_bytes == 0
    assert model.pooling is Pooling.MEAN
    embedder = model.new_embedder()
    for pooling, expected in zip((Pooling.MEAN, Pooling.LAST), RECORDED[name], strict=True):
        (found,) = finish(embedder.vectors([IDS], pooling), embedder.scheduler)
        assert found[:6] == pytest.approx(expected, abs=5e-4)


def test_a_split_model_with_convolutions_computes_the_same(tmp_path: Path) -> None:
    path = both_ways.write("lfm2-dense", tmp_path / "m.gguf")
    whole = load(path, backend="reference", embeddings=True).new_embedder()
    parts = [("reference", 1), ("torch:cpu", 0)]
    split = load(path, parts=parts, embeddings=True).new_embedder()
    one, other = (
        finish(each.vectors([IDS], Pooling.MEAN), each.scheduler)[0] for each in (whole, split)
    )
    assert other == pytest.approx(one, abs=1e-4)


def test_such_a_file_cannot_chat_and_says_so(tmp_path: Path) -> None:
    path = both_ways.write("qwen2-dense", tmp_path / "m.gguf")
    with pytest.raises(UnsupportedModel, match="turns texts into vectors"):
        load(path)
    fault = inspect_model(path).fault
    assert fault is not None
    assert (fault.kind, fault.about) == (FaultKind.OTHER_TYPE, "embeddings")


@pytest.mark.parametrize("name", ["gemma3-dense", "deepseek2-moe", "mamba2-dense"])
def test_layers_that_cannot_read_both_ways_are_refused(name: str, tmp_path: Path) -> None:
    path = both_ways.write(name, tmp_path / "m.gguf")
    with pytest.raises(
        UnsupportedModel, match="reads texts in both directions, which this version"
    ):
        load(path, embeddings=True)


def test_a_key_that_is_neither_true_nor_false_is_damage(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"llama.attention.causal": 7})
    with pytest.raises(ModelFileError, match=r"'llama\.attention\.causal' is 7"):
        load(path, embeddings=True)
