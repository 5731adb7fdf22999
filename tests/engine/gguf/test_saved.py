"""Files saved by llama.cpp itself: the keys it adds for other architectures are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine.cli.commands import main
from engine.gguf.reader import GGUFFile

ADDED: dict[str, Any] = {
    "posnet.block_count": 0,
    "wkv.head_size": 0,
    "token_shift_count": 2,
    "pooling_type": (1 << 32) - 1,
    "decoder_start_token_id": -1,
    "logit_scale": 0.0,
    "kda.gate_lower_bound": float("-inf"),
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "expert_group_scale": 0.05,
    "expert_weights_norm": False,
    "swiglu_clamp_exp": [0.0, 0.0],
    "attention.layer_norm_epsilon": 0.0,
    "rope.scaling.type": "linear",
    "rope.scaling.factor": 0.0,
}
KEPT: dict[str, Any] = {
    "attention.causal": True,
    "attention.sliding_window": 0,
    "expert_count": 0,
    "leading_dense_block_count": 0,
    "deepstack_mapping": [-1, 3],
    "activation.situ_beta": 1.0,
}


def write(path: Path, name: str) -> Path:
    keys = {f"{name}.{key}": value for key, value in (ADDED | KEPT).items()}
    return tiny.write(path, architecture=name, metadata=keys | {"xielu.eps": [0.0, 0.0]})


def test_unset_keys_are_left_out_and_others_kept(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path / "m.gguf", "qwen3")) as file:
        assert not [key for key in ADDED if f"qwen3.{key}" in file.metadata and "shift" not in key]
        assert {key: file.metadata[f"qwen3.{key}"] for key in KEPT} == KEPT
        assert "xielu.eps" not in file.metadata
        assert file.integer("qwen3.block_count") == 2
        assert file.string("tokenizer.ggml.model") == "gpt2"


def test_a_family_with_caps_keeps_them(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path / "m.gguf", "gemma3")) as file:
        assert file.number("gemma3.attn_logit_softcapping") == 50.0
        assert file.number("gemma3.final_logit_softcapping") == 30.0


def test_other_files_keep_every_key(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.gguf", "qwen3")
    path = tiny.rewrite(whole, tmp_path / "m.gguf", {"qwen3.logit_scale": 0.0})
    with GGUFFile.open(path) as file:
        assert "qwen3.posnet.block_count" not in file.metadata
        assert file.number("qwen3.logit_scale") == 0.0


def test_such_a_file_gives_the_logits_of_one_without_these_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Any] = []
    plain = tiny.write(tmp_path / "plain.gguf", architecture="qwen3")
    for path in (plain, write(tmp_path / "m.gguf", "qwen3")):
        assert main(["logits", "-m", str(path), "--tokens", "1,2,3", "--top", "0", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
