"""gpt-oss: what its page reads from metadata beyond the recorded models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import family_files
from engine import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.loading.preflight import identify, outline
from engine.models.layers import Decoder
from engine.models.mixers import Attention
from sessions import open_session

BASE, FACTOR, TRAINED, C = 150_000.0, 32.0, 4_096, 64
YARN = {
    "rope.freq_base": BASE,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": FACTOR,
    "rope.scaling.original_context_length": TRAINED,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
}


def write(path: Path, **keys: Any) -> Path:
    width, count, inside = 32, 2, 32
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,),
        "post_attention_norm": (width,),
        "attn_sinks": (1,),
        "ffn_gate_inp": (count, width),
        "ffn_gate_inp.bias": (count,),
    }
    for part, rows in (("q", C), ("k", C), ("v", C), ("output", width)):
        layer[f"attn_{part}"] = (rows, C if part == "output" else width)
        layer[f"attn_{part}.bias"] = (rows,)
    for part, rows, columns in (
        ("gate", inside, width),
        ("up", inside, width),
        ("down", width, inside),
    ):
        layer[f"ffn_{part}_exps"] = (count, rows, columns)
        layer[f"ffn_{part}_exps.bias"] = (count, rows)
    usual = {
        "attention.key_length": C,
        "attention.value_length": C,
        "attention.sliding_window": 8,
        "expert_count": count,
        "expert_used_count": 1,
        "expert_feed_forward_length": inside,
    }
    return family_files.write(path, "gpt-oss", layer, usual | keys, layers=4, width=width)


def built(path: Path) -> Decoder:
    with GGUFFile.open(path) as file:
        build, config = identify(file)
        return outline(file, config, build)


def attentions(path: Path) -> list[Attention]:
    found = [block.attention for block in built(path).blocks]
    return [one for one in found if isinstance(one, Attention)]


def test_the_bounds_of_yarn_are_not_rounded(tmp_path: Path) -> None:
    """As the model was trained: `"truncate": false` in its configuration."""
    first = attentions(write(tmp_path / "m.gguf", **YARN))[0].rope
    low, high = (
        C * math.log(TRAINED / (turns * 2 * math.pi)) / (2 * math.log(BASE)) for turns in (32, 1)
    )
    assert (low, high) == pytest.approx((8.092779115512402, 17.39802450158856), rel=1e-9)
    plain = BASE ** -(np.arange(0, C, 2) / C)
    divided = np.clip((np.arange(C // 2) - low) / (high - low), 0, 1)
    expected = plain / FACTOR * divided + plain * (1 - divided)
    assert first.frequencies.numpy() == pytest.approx(expected, rel=1e-5)
    assert first.scale == pytest.approx(0.1 * math.log(FACTOR) + 1)


def test_every_second_layer_has_full_attention(tmp_path: Path) -> None:
    assert [one.window for one in attentions(write(tmp_path / "m.gguf"))] == [8, 0, 8, 0]
    keys = {"attention.sliding_window_pattern": [False, True, True, False]}
    assert [one.window for one in attentions(write(tmp_path / "p.gguf", **keys))] == [0, 8, 8, 0]


def test_layers_with_a_window_may_have_a_rope_base_of_their_own(tmp_path: Path) -> None:
    keys = {"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4}
    local, full, *_ = (
        one.rope.frequencies for one in attentions(write(tmp_path / "m.gguf", **keys))
    )
    assert float(local[1]) == pytest.approx(1e4 ** (-2 / C))
    assert float(full[1]) == pytest.approx(1e6 ** (-2 / C))


def test_a_pattern_of_too_few_layers_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", **{"attention.sliding_window_pattern": [True, False]})
    with pytest.raises(ModelFileError, match=r"sliding_window_pattern' has 2 values for 4 layers"):
        open_session(path)
