"""apertus: the learned activation of each layer, by keys of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import family_files
from engine import ModelFileError
from engine.models.feed_forward import MLP, ExpandedIntegral
from sessions import open_decoder, open_session

WIDTH = 32
FACTORS: dict[str, Any] = {
    "xielu.alpha_n": [0.8, -40.0],
    "xielu.alpha_p": [0.7, 30.0],
    "xielu.beta": [0.5, 0.4],
    "xielu.eps": -1e-6,
}


def write(path: Path, **keys: Any) -> Path:
    layer = family_files.attention(WIDTH) | family_files.gated_mlp(WIDTH)
    layer |= {"attn_q_norm": (WIDTH,), "attn_k_norm": (WIDTH,)}
    del layer["ffn_gate"]
    kept = {key: value for key, value in (FACTORS | keys).items() if value is not None}
    return family_files.write(path, "apertus", layer, kept, width=WIDTH)


def test_each_layer_has_its_own_factors(tmp_path: Path) -> None:
    found: list[ExpandedIntegral] = []
    for block in open_decoder(write(tmp_path / "m.gguf")).blocks:
        assert isinstance(block.mlp, MLP)
        assert isinstance(block.mlp.activation, ExpandedIntegral)
        found.append(block.mlp.activation)
    first, second = found
    assert first.positive == pytest.approx(math.log(1 + math.exp(0.7)))
    assert first.negative == pytest.approx(0.5 + math.log(1 + math.exp(0.8)))
    assert first.epsilon == second.epsilon == pytest.approx(-1e-6)
    assert (second.positive, second.negative) == pytest.approx((30.0, 0.4), rel=1e-6)


@pytest.mark.parametrize("value", [None, [0.5], [0.5, math.nan], [0.5, math.inf], "much"])
def test_faulty_factors_are_refused(value: object, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", **{"xielu.beta": value})
    with pytest.raises(ModelFileError, match=r"'xielu\.beta' is missing.* 2 layers"):
        open_session(path)
