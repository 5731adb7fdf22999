"""Architectures against transformers: recorded float32 logits, and live in a slow test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import oracle
from engine import ModelFileError, UnsupportedModel
from sessions import open_session


def run(path: Path, tokens: list[int], pieces: list[int]) -> np.ndarray:
    """Logits [T, V] after every token, read in pieces of the given lengths."""
    session, rows, start = open_session(path), [], 0
    for length in pieces:
        for hidden in session.read(tokens[start : start + length]):
            rows.append(session.logits(hidden))
        start += length
    assert start == len(tokens)
    return torch.cat(rows).numpy()


@pytest.mark.parametrize("name", list(oracle.CASES))
@pytest.mark.parametrize("pieces", [[oracle.TOKENS], [1, 7, 16, 15, 1], [1] * oracle.TOKENS])
def test_logits_equal_transformers(name: str, pieces: list[int], tmp_path: Path) -> None:
    state = oracle.recorded(name)
    tokens, expected = state.pop("tokens"), state.pop("logits")
    path = oracle.write_gguf(oracle.CASES[name], state, tmp_path / "model.gguf")
    found = run(path, tokens.tolist(), pieces)
    assert np.abs(found - expected).max() <= 1e-4  # the gate is 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", list(oracle.CASES))
def test_recorded_logits_are_what_transformers_says_today(name: str) -> None:
    live, kept = oracle.run_transformers(oracle.CASES[name]), oracle.recorded(name)
    assert np.array_equal(live["tokens"], kept["tokens"])
    assert np.abs(live["logits"] - kept["logits"]).max() <= 1e-4


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_trim_and_read_again_equals_fresh(name: str, tmp_path: Path) -> None:
    state = oracle.recorded(name)
    tokens = state.pop("tokens").tolist()
    state.pop("logits")
    path = oracle.write_gguf(oracle.CASES[name], state, tmp_path / "model.gguf")
    fresh, trimmed = open_session(path), open_session(path)
    for at in range(30):
        expected = fresh.step(tokens[at])
    for wrong in range(25):
        trimmed.step(tokens[at] if at % 2 else wrong)
    trimmed.trim(0)
    for token in tokens[:20]:
        trimmed.step(token)
    trimmed.trim(10)
    for token in tokens[10:30]:
        found = trimmed.step(token)
    assert trimmed.tokens == fresh.tokens
    assert torch.equal(found, expected)


def test_a_tensor_nobody_uses_is_refused(tmp_path: Path) -> None:
    """A bias that is ignored would turn answers into noise."""
    state = oracle.recorded("llama")
    state.pop("tokens")
    state.pop("logits")
    case = oracle.CASES["llama"]
    path = oracle.write_gguf(
        case, state | {"model.layers.0.self_attn.q_proj.bias": np.zeros(48)}, tmp_path / "m.gguf"
    )
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.attn_q\.bias"):
        open_session(path)


@pytest.mark.parametrize(
    "missing",
    ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight"],
)
def test_a_missing_tensor_is_named(missing: str, tmp_path: Path) -> None:
    state = oracle.recorded("llama")
    del state["tokens"], state["logits"], state[missing]
    path = oracle.write_gguf(oracle.CASES["llama"], state, tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match="missing") as refused:
        open_session(path)
    assert refused.value.remedy


def test_a_misshapen_tensor_is_named_with_both_shapes(tmp_path: Path) -> None:
    state = oracle.recorded("qwen3")
    del state["tokens"], state["logits"]
    state["model.layers.0.mlp.down_proj.weight"] = np.zeros((48, 79), np.float16)
    path = oracle.write_gguf(oracle.CASES["qwen3"], state, tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match=r"blk\.0\.ffn_down\.weight.*\[48, 79\].*\[48, 80\]"):
        open_session(path)
