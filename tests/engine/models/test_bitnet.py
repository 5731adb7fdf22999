"""bitnet: its activation, which only newer files state."""

from __future__ import annotations

from pathlib import Path

import pytest

import family_files
from engine import UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.loading.preflight import identify, outline
from engine.models.feed_forward import GatedMLP
from kernels.ops import Activation


def activation(path: Path, width: int = 32, layers: int = 2, **keys: str) -> Activation:
    """That of a file, of which no weights are read."""
    layer = family_files.attention(width) | family_files.gated_mlp(width)
    layer |= {"attn_sub_norm": (width,), "ffn_sub_norm": (width,)}
    family_files.write(path, "bitnet", layer, keys, layers=layers, width=width)
    with GGUFFile.open(path) as file:
        build, config = identify(file)
        mlp = outline(file, config, build).blocks[-1].mlp
    assert isinstance(mlp, GatedMLP)
    assert isinstance(mlp.activation, Activation)
    return mlp.activation


def test_the_file_may_state_the_activation(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    assert activation(path) is Activation.SILU
    assert activation(path, hidden_activation="silu") is Activation.SILU
    assert activation(path, hidden_activation="relu2") is Activation.RELU_SQUARED
    with pytest.raises(UnsupportedModel, match=r"'bitnet\.hidden_activation' is 'gelu'"):
        activation(path, hidden_activation="gelu")


def test_the_2b4t_model_squares_a_relu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("engine.models.families.bitnet._WIDTH_OF_2B4T", 32)
    assert activation(tmp_path / "m.gguf", layers=30) is Activation.RELU_SQUARED
