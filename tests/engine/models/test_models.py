"""Architectures against transformers: recorded float32 logits, and a live run as a slow test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import architecture_files
import oracle
from chosen_backend import ops
from engine import ModelFileError, UnsupportedModel
from engine.core.runner import Runner
from engine.core.session import Session
from engine.errors import RequestError
from engine.state.pages import PagePool
from interpreter import Interpreter
from sessions import open_session


@pytest.mark.parametrize("name", list(oracle.CASES))
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    state = oracle.recorded(name)
    tokens, expected = state.pop("tokens"), state.pop("logits")
    case = oracle.CASES[name]
    path = oracle.write_gguf(case, state, tmp_path / "model.gguf")
    # Some RoPE scalings depend on the context: ours on its maximum, transformers on its length.
    context = oracle.TOKENS if name.endswith(("-short", "-dynamic")) else case.context
    session = open_session(path, context)
    for pieces in ((), (1, 7, 16, 15, 1), (1,) * oracle.TOKENS):
        found = architecture_files.run(session, tokens.tolist(), pieces)
        assert np.abs(found - expected).max() <= 1e-4, pieces  # required: 1e-3


@pytest.mark.parametrize("name", list(oracle.CASES))
def test_a_recorded_program_equals_its_ops_bit_for_bit(name: str, tmp_path: Path) -> None:
    state = oracle.recorded(name)
    tokens = state.pop("tokens").tolist()
    state.pop("logits")
    recorded = open_session(oracle.write_gguf(oracle.CASES[name], state, tmp_path / "m.gguf"))
    runner = recorded.runner
    assert runner.is_recorded == ("cpu" in ops.BACKENDS)  # no architecture runs op by op
    plain_runner = Runner(runner.model, recorder=Interpreter)
    plain = Session(plain_runner, PagePool(plain_runner.layout), recorded.context)
    for piece in (tokens[:17], tokens[17:18], tokens[18:30]):
        ours, theirs = (
            torch.cat([session.logits(hidden) for hidden in session.prefill(piece)])
            for session in (recorded, plain)
        )
        assert torch.equal(ours, theirs)
    for token in tokens[30:]:
        assert torch.equal(recorded.step(token), plain.step(token))


def test_missing_or_misshapen_key_head_norms_are_refused(tmp_path: Path) -> None:
    state = oracle.recorded("command-r-plus")
    del state["tokens"], state["logits"]
    case, name = oracle.CASES["command-r-plus"], "model.layers.3.self_attn.k_norm.weight"
    norms = state.pop(name)
    path = oracle.write_gguf(case, state, tmp_path / "missing.gguf")
    with pytest.raises(ModelFileError, match=r"'blk\.3\.attn_k_norm\.weight' is missing"):
        open_session(path)
    path = oracle.write_gguf(case, state | {name: norms[:1]}, tmp_path / "misshapen.gguf")
    with pytest.raises(ModelFileError, match=r"has the shape \[1, 4\].* \[2, 4\]"):
        open_session(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(oracle.CASES))
def test_recorded_logits_equal_the_installed_transformers(name: str) -> None:
    live, kept = oracle.run_transformers(oracle.CASES[name]), oracle.recorded(name)
    assert np.array_equal(live["tokens"], kept["tokens"])
    assert np.abs(live["logits"] - kept["logits"]).max() <= 1e-4


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_trim_then_append_equals_a_fresh_session(name: str, tmp_path: Path) -> None:
    state = oracle.recorded(name)
    tokens = state.pop("tokens").tolist()
    state.pop("logits")
    path = oracle.write_gguf(oracle.CASES[name], state, tmp_path / "model.gguf")
    fresh, trimmed = open_session(path), open_session(path)
    for at in range(30):
        expected = fresh.step(tokens[at])
    for wrong in range(25):
        trimmed.step(tokens[at] if at % 2 else wrong)
    trimmed.rewind(0)
    for token in tokens[:20]:
        trimmed.step(token)
    trimmed.rewind(10)
    for token in tokens[10:30]:
        found = trimmed.step(token)
    assert trimmed.tokens == fresh.tokens
    assert torch.equal(found, expected)


def test_an_unused_tensor_is_refused(tmp_path: Path) -> None:
    """Ignoring a norm would turn answers into noise."""
    state = oracle.recorded("llama")
    state.pop("tokens")
    state.pop("logits")
    case = oracle.CASES["llama"]
    path = oracle.write_gguf(
        case, state | {"model.layers.0.self_attn.q_norm.weight": np.ones(8)}, tmp_path / "m.gguf"
    )
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.attn_q_norm"):
        open_session(path)


def test_a_context_beyond_the_learned_positions_is_refused(tmp_path: Path) -> None:
    state = oracle.recorded("starcoder")
    del state["tokens"], state["logits"]
    path = oracle.write_gguf(oracle.CASES["starcoder"], state, tmp_path / "m.gguf")
    with pytest.raises(RequestError, match="learned positions for 256 tokens") as refused:
        open_session(path, 257)
    assert "at most 256" in refused.value.remedy


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
