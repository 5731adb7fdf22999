"""Files without a readable vocabulary: run on token ids, refused where a text is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine.cli.commands import main
from engine.errors import FaultKind, UnsupportedModel
from engine.loading.inspect import inspect_model
from engine.loading.loader import load

KIND, TOKENS = "tokenizer.ggml.model", "tokenizer.ggml.tokens"
# Changes of the metadata, and what the error says was found.
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "of a test": ({KIND: "test", TOKENS: [f"tok_{number}" for number in range(128)]}, "'test'"),
    "none": ({KIND: "none", TOKENS: None}, "'none'"),
    "no_vocab": ({KIND: "no_vocab", TOKENS: None}, "'no_vocab'"),
    "no key": ({}, "no tokenizer.ggml.model"),
}


def write(path: Path, metadata: dict[str, Any]) -> Path:
    return tiny.write(path, tokenizer=None, vocabulary=128, metadata=metadata)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_such_a_file_gives_logits_and_facts(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path / "m.gguf", KINDS[kind][0]))
    assert main(["logits", "-m", path, "--tokens", "1,2,3", "--all", "--top", "0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["positions"]
    assert [len(row["logits"]) for row in rows] == [128] * 3
    assert main(["logits", "-m", path, "--tokens", "1,2,3", "--top", "2"]) == 0
    assert capsys.readouterr().out.startswith("after position 2:\n")
    assert main(["bench", "-m", path, "-p", "4", "-n", "2", "-r", "1"]) == 0
    capsys.readouterr()
    assert main(["info", "-m", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["vocabulary"] == 128
    assert facts["vocabulary_from"].startswith("nowhere: The file has no vocabulary that this")


def test_its_logits_are_those_of_the_same_weights_with_a_vocabulary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_words = tiny.write(tmp_path / "words.gguf")
    changes = {KIND: "none", TOKENS: None, "tokenizer.ggml.token_type": None}
    without = tiny.rewrite(with_words, tmp_path / "none.gguf", changes)
    printed: list[str] = []
    for path in (with_words, without):
        words = ["logits", "-m", str(path), "--tokens", "5,6,7", "--all", "--top", "0", "--json"]
        assert main(words) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["chat", "complete", "logits", "tokenize"])
def test_a_text_is_refused_in_one_sentence(
    kind: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata, found = KINDS[kind]
    path = write(tmp_path / "m.gguf", metadata)
    assert main([command, "-m", str(path), "-p", "hello"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    sentence = "The file has no vocabulary that this program can read"
    assert line.startswith(f"tokonoma: {sentence} (")
    assert "), so it cannot read texts. " in line
    assert found in line


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_says_why_it_cannot_chat(kind: str, tmp_path: Path) -> None:
    facts = inspect_model(write(tmp_path / "m.gguf", KINDS[kind][0]))
    assert facts.problem.startswith("The file has no vocabulary")
    assert facts.fault is not None
    assert (facts.fault.kind, facts.fault.about) == (FaultKind.OTHER_TYPE, "no vocabulary")
    assert facts.layers == 2
    assert facts.memory_bytes > 0


def test_an_unknown_pre_tokenizer_is_no_hindrance_to_token_ids(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"tokenizer.ggml.pre": "unheard-of"})
    model = load(path, ids_only=True)
    assert model.tokenizer.size == model.config.vocabulary
    assert model.tokenizer.piece(3) == b""
    with pytest.raises(UnsupportedModel, match="unheard-of"):
        model.tokenizer.encode("hello")
    with pytest.raises(UnsupportedModel, match="unheard-of"):
        load(path)


def test_a_readable_vocabulary_is_used(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "m.gguf"), ids_only=True)
    assert model.tokenizer.encode("hello")
    assert model.vocabulary == ""
