"""Command line: embeddings of one text and of many."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine.cli.commands import main


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf", context=256))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["embed", *arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["embed", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_batch_gives_the_vectors_of_single_texts(
    pooling: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a cat", "another, much longer text about a cat", "ü"]
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(texts), encoding="utf-8")
    batch = run(capsys, "-m", model, "--batch", str(path), "--pooling", pooling)
    for text, vector, tokens in zip(texts, batch["embeddings"], batch["tokens"], strict=True):
        single = run(capsys, "-m", model, "-p", text, "--pooling", pooling)
        assert single == {"embedding": vector, "tokens": tokens, "pooling": pooling}
        assert math.hypot(*vector) == pytest.approx(1)


def test_the_last_token_is_the_default(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = run(capsys, "-m", model, "-p", "text", "--pooling", "last")
    assert run(capsys, "-m", model, "-p", "text") == wanted
    assert main(["embed", "-m", model, "-p", "text"]) == 0
    assert " numbers (last): " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-p", ""], "Text 1 is empty."),
        (["-p", "word " * 300], "the model can take in 256."),
        (["-p", "x", "--pooling", "best"], "invalid choice"),
        (["--batch", "nowhere.json"], "nowhere.json cannot be read"),
        ([], "One of the arguments"),
    ],
)
def test_bad_input_is_refused(
    options: list[str], sentence: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capsys, "-m", model, *options)
