"""exaone4: which layers have a window, and which have no position encoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import family_files
from engine import ModelFileError
from engine.models.mixers import Attention
from sessions import open_decoder, open_session

WIDTH = 32


def write(path: Path, layers: int, **keys: Any) -> Path:
    layer = family_files.attention(WIDTH) | family_files.gated_mlp(WIDTH)
    del layer["attn_norm"], layer["ffn_norm"]
    layer |= dict.fromkeys(
        ("attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"), (WIDTH,)
    )
    named = {f"attention.{key}": value for key, value in keys.items()}
    return family_files.write(path, "exaone4", layer, named, layers=layers, width=WIDTH)


def kinds(path: Path) -> list[tuple[int, bool]]:
    """Of each layer its window, and whether it has RoPE."""
    mixers = [block.attention for block in open_decoder(path).blocks]
    return [
        (one.window, one.rope.frequencies.numel() > 0)
        for one in mixers
        if isinstance(one, Attention)
    ]


def test_the_small_model_has_full_attention_with_rope(tmp_path: Path) -> None:
    assert kinds(write(tmp_path / "m.gguf", 2)) == [(0, True)] * 2
    assert kinds(write(tmp_path / "w.gguf", 2, sliding_window=8)) == [(0, True)] * 2


def test_a_pattern_says_which_layers_have_a_window(tmp_path: Path) -> None:
    keys = {"sliding_window": 8, "sliding_window_pattern": [True, False, True]}
    found = kinds(write(tmp_path / "m.gguf", 3, **keys))
    assert found == [(8, True), (0, False), (8, True)]


def test_the_large_model_needs_no_keys(tmp_path: Path) -> None:
    assert kinds(write(tmp_path / "m.gguf", 64)) == [*[(4_096, True)] * 3, (0, False)] * 16


def test_a_pattern_of_too_few_layers_is_refused(tmp_path: Path) -> None:
    keys = {"sliding_window": 8, "sliding_window_pattern": [True]}
    with pytest.raises(ModelFileError, match=r"sliding_window_pattern' has 1 values for 3 layers"):
        open_session(write(tmp_path / "m.gguf", 3, **keys))
