"""The subcommand embed: keys, batches, pooling, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny
import tiny_encoders
from engine.cli.commands import main

TEXTS = ["hello", "the quick brown fox"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON object that a subcommand prints."""
    assert main([*arguments, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The single line on stderr of a subcommand that must fail."""
    assert main(arguments) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf", architecture="qwen3"))


def test_a_text_and_a_batch(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (batch := tmp_path / "texts.json").write_text(json.dumps(TEXTS), encoding="utf-8")
    together = run(capsys, "embed", "-m", model, "--batch", str(batch))
    alone = [run(capsys, "embed", "-m", model, "-p", text) for text in TEXTS]
    assert set(together) == {"embeddings", "tokens"}
    assert together["embeddings"] == [one["embedding"] for one in alone]
    assert together["tokens"] == sum(one["tokens"] for one in alone)
    assert main(["embed", "-m", model, "-p", TEXTS[0]]) == 0
    printed = [float(number) for number in capsys.readouterr().out.split()]
    assert printed == pytest.approx(alone[0]["embedding"], abs=1e-6)


def test_the_pooling_can_be_chosen(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("embed", "-m", model, "-p", TEXTS[1])
    last, mean, cls = (
        run(capsys, *options, "--pooling", kind)["embedding"] for kind in ("last", "mean", "cls")
    )
    assert run(capsys, *options)["embedding"] == last
    assert last != mean != cls
    assert "invalid choice: 'rank'" in refused(capsys, *options, "--pooling", "rank")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '"a"', "[[]]", "nonsense"])
def test_a_batch_is_an_array_of_texts(
    text: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (batch := tmp_path / "texts.json").write_text(text, encoding="utf-8")
    assert "not a JSON array" in refused(capsys, "embed", "-m", model, "--batch", str(batch))


def test_texts_that_cannot_be_read_are_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (batch := tmp_path / "texts.json").write_text("[]", encoding="utf-8")
    assert "no text" in refused(capsys, "embed", "-m", model, "--batch", str(batch))
    assert "is empty" in refused(capsys, "embed", "-m", model, "-p", "")
    assert "300 tokens" in refused(capsys, "embed", "-m", model, "-p", "0" * 300)
    assert "tokonoma: " in refused(capsys, "embed", "-m", model)


def test_documents_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranker = str(tiny_encoders.write(tmp_path / "ranker.gguf", ranks=True))
    (documents := tmp_path / "texts.json").write_text(json.dumps(TEXTS), encoding="utf-8")
    options = ("rerank", "-m", ranker, "--query", "fox", "--documents", str(documents))
    found = run(capsys, *options)
    assert set(found) == {"scores", "tokens"}
    assert len(found["scores"]) == len(TEXTS)
    assert main(options) == 0
    printed = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == pytest.approx(found["scores"], abs=1e-6)
    documents.write_text("[]", encoding="utf-8")
    assert "no document" in refused(capsys, *options)


def test_a_model_without_such_a_head_scores_nothing(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (documents := tmp_path / "texts.json").write_text(json.dumps(TEXTS), encoding="utf-8")
    options = ("rerank", "-m", model, "--query", "fox", "--documents", str(documents))
    assert "no head that scores" in refused(capsys, *options)


def test_an_encoder_embeds_and_answers_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = str(tiny_encoders.write(tmp_path / "encoder.gguf"))
    assert len(run(capsys, "embed", "-m", encoder, "-p", "hello")["embedding"]) == (
        tiny_encoders.WIDTH
    )
    (file := tmp_path / "text.txt").write_text("hello " * 40, encoding="utf-8")
    for command in (["chat", "-p", "a"], ["complete", "-p", "a"], ["logits", "-p", "a"],
                    ["perplexity", "-f", str(file)], ["bench", "-p", "4"]):  # fmt: skip
        assert "it cannot chat" in refused(capsys, *command, "-m", encoder)
    facts = run(capsys, "info", "-m", encoder)
    assert facts["architecture"] == "bert"
    assert facts["memory"]["cache_bytes"] == 0
    assert facts["pooling"] == "mean"
    slow = {one["part"] for one in facts["slow"]}
    assert slow in ({"full_attention"}, set())
    assert run(capsys, "tokenize", "-m", encoder, "-p", "hello")["pieces"][0] == "[CLS]"
