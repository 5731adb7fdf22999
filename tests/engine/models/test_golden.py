"""Reference backend against recorded exact logits and llama.cpp, on real and tiny models.

Gates: golden/README.md. Exact rows are transformers in float32 over the same dequantized weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import golden_tiny
from chosen_backend import ops
from engine.cli.commands import main
from engine.frontend.template import prompt_ids
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Role, Turn
from sessions import logits_at, open_session

pytestmark = [pytest.mark.sweep, pytest.mark.real]
NAMES = ["smollm2", "gemma3"]


@pytest.fixture(autouse=True, scope="module")
def exact() -> Iterator[None]:
    """Use the reference backend; test_native_golden.py has the gates of the native kernels."""
    with ops.only("reference"):
        yield


@cache
def loaded(path: Path) -> LoadedModel:
    return load(path, context=2048, cache=CacheType.F32)


@pytest.fixture
def model(request: pytest.FixtureRequest, starter_model: Path, gemma_model: Path) -> LoadedModel:
    return loaded({"smollm2": starter_model, "gemma3": gemma_model}[request.param])


@pytest.fixture
def facts(request: pytest.FixtureRequest, golden: Path) -> Any:
    return json.loads((golden / f"{request.param}.json").read_text(encoding="utf-8"))


def both(function: Any) -> Any:
    return pytest.mark.parametrize(
        ("model", "facts", "name"), [(n, n, n) for n in NAMES], indirect=["model", "facts"]
    )(function)


gemma_is_slow = pytest.mark.parametrize(
    ("model", "facts", "name"),
    [("smollm2",) * 3, pytest.param(*("gemma3",) * 3, marks=pytest.mark.slow)],
    indirect=["model", "facts"],
)


@both
def test_token_ids_are_exact(model: LoadedModel, facts: Any, name: str) -> None:
    tokenizer = model.tokenizer
    for row in facts["tokenize"]:
        text = row["text"]
        assert tokenizer.encode(text, add_special=False, parse_special=False) == row["ids"]
        assert tokenizer.encode(text, add_special=False) == row["ids_special"]
        assert tokenizer.encode(text) == row["ids_add"]
    for row in facts["completions"]:
        assert prompt_ids(tokenizer, row["prompt"]) == row["prompt_ids"]


@pytest.mark.parametrize(("model", "facts"), [("smollm2", "smollm2")], indirect=True)
def test_chat_prompts_are_exact(model: LoadedModel, facts: Any) -> None:
    chats = [row for row in facts["completions"] if row["kind"] == "chat"]
    assert chats
    for row in chats:
        turns = [Turn(Role(turn["role"]), turn["content"]) for turn in row["input"]]
        assert model.template.render(turns) == row["prompt"]


@both
def test_logits_equal_the_exact_rows(
    model: LoadedModel, facts: Any, name: str, golden: Path
) -> None:
    """Largest logit difference ≤ 0.01 and KL ≤ 1e-6 on every recorded row."""
    compared = 0
    with np.load(golden / f"{name}_logits.npz") as rows:
        for key in (key for key in rows.files if key.startswith("exact_")):
            prompt, position = (int(part.strip("promtsi")) for part in key.split("_")[1:3])
            ids = _sequence(facts, prompt)
            found = logits_at(model.new_session(), ids[: position + 1], [position])[0].double()
            exact = torch.from_numpy(rows[key]).double()
            assert float((found - exact).abs().max()) <= 0.01, key
            assert _kl(exact, found) <= 1e-6, key
            compared += 1
    assert compared >= 4


@both
def test_logits_agree_with_llamacpp_at_every_prompt_position(
    model: LoadedModel, facts: Any, name: str
) -> None:
    """Same top token at ≥ 95 % of positions and rms ≤ 0.40 over its ten best."""
    same = total = 0
    squares: list[float] = []
    for row in facts["completions"]:
        ids, tops = row["prompt_ids"], row["prompt_top10_logits"]
        found = logits_at(model.new_session(), ids, range(len(ids)))
        for logits, top in zip(found, tops, strict=True):
            same += int(logits.argmax()) == top[0][0]
            squares += [(float(logits[token]) - value) ** 2 for token, value in top]
            total += 1
    assert same / total >= 0.95
    assert float(np.sqrt(np.mean(squares))) <= 0.40


@both
def test_top_tokens_agree_with_llamacpp_along_its_own_answers(
    model: LoadedModel, facts: Any, name: str
) -> None:
    """Its greedy answers are fed back, so one early difference does not count twice."""
    same = total = 0
    for row in facts["completions"]:
        ids = row["prompt_ids"] + row["ids"]
        positions = range(len(row["prompt_ids"]) - 1, len(ids) - 1)
        found = logits_at(model.new_session(), ids, positions).argmax(1).tolist()
        same += sum(a == step["id"] for a, step in zip(found, row["steps"], strict=True))
        total += len(found)
    assert same / total >= 0.95


@pytest.mark.parametrize("format", golden_tiny.FORMATS)
def test_tiny_models_equal_float64_in_every_format(
    format: str, golden: Path, tmp_path: Path
) -> None:
    """Normalized squared error ≤ 1e-6 against float64 arithmetic over the same bytes."""
    session = open_session(golden_tiny.write(tmp_path / "tiny.gguf", format), context=4096)
    facts = json.loads((golden / "tiny.json").read_text(encoding="utf-8"))
    with np.load(golden / "tiny_logits.npz") as rows:
        for index, sequence in enumerate(facts["sequences"]):
            if f"exact_{format}_{index}" not in rows:
                continue
            session.rewind(0)
            ids = sequence + facts["models"][format]["greedy_ids"][index]
            exact = torch.from_numpy(rows[f"exact_{format}_{index}"]).double()
            found = logits_at(session, ids[: len(exact)], range(len(exact))).double()
            error = float(((found - exact) ** 2).sum() / (exact**2).sum())
            assert error <= 1e-6, (format, index, error)


@gemma_is_slow
def test_perplexity_agrees_with_llamacpp(
    model: LoadedModel, facts: Any, name: str, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 1 % of llama.cpp's tool at context 512."""
    text = str(golden / "ppl_text.txt")
    assert main(["perplexity", "-m", str(model.path), "-f", text, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    recorded = facts["perplexity"]["llama.cpp"]["ppl"]
    assert found["tokens"] == 510
    assert abs(found["perplexity"] / recorded - 1) <= 0.01


def _sequence(facts: Any, prompt: int) -> list[int]:
    """The prompt and answer tokens that the rows of one prompt index were recorded over."""
    row = facts["completions"][prompt]
    return row["prompt_ids"] + row["ids"]


def _kl(exact: torch.Tensor, found: torch.Tensor) -> float:
    p, q = exact.log_softmax(0), found.log_softmax(0)
    return float((p.exp() * (p - q)).sum())
