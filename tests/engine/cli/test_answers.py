"""Command line: several answers to one prompt, and log probabilities."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine.cli.commands import main

TEXT = ("complete", "-p", "the quick brown fox", "-n", "12", "--temp", "1.2", "--seed", "7")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "tiny.gguf", context=512))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_several_answers_are_those_of_consecutive_seeds(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(capsys, *TEXT, "-m", model, "-N", "3")
    answers = found["answers"]
    assert [one["seed"] for one in answers] == [7, 8, 9]
    assert len({one["text"] for one in answers}) == 3
    assert {key: found[key] for key in answers[0]} == answers[0]
    for one in answers:
        alone = run(capsys, *TEXT[:-1], str(one["seed"]), "-m", model)
        assert alone["token_ids"] == one["token_ids"]
        assert "answers" not in alone


def test_several_answers_are_printed_one_after_the_other(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = run(capsys, *TEXT, "-m", model, "--answers", "2")["answers"]
    assert main([*TEXT, "-m", model, "--answers", "2"]) == 0
    printed = capsys.readouterr()
    parts = re.split(r"^--- answer \d of 2 ---\n", printed.out, flags=re.MULTILINE)
    assert parts == ["", *(one["text"] + "\n" for one in wanted)]
    assert printed.err.count("generated tokens") == 2


def test_log_probabilities_of_each_token(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, *TEXT, "-m", model, "--logprobs", "3")
    assert [one["token_id"] for one in found["logprobs"]] == found["token_ids"]
    for one in found["logprobs"]:
        values = [top["logprob"] for top in one["top"]]
        assert values == sorted(values, reverse=True)
        assert len(values) == 3
        assert one["logprob"] <= values[0] < 0
        assert sum(map(math.exp, values)) < 1
    assert "logprobs" not in run(capsys, *TEXT, "-m", model)
    assert main([*TEXT, "-m", model, "--logprobs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(bool(re.match(r" +-\d+\.\d{3}  ", line)) for line in lines) == 12


def test_a_draft_model_changes_no_answer(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = str(tiny.write(tmp_path / "draft.gguf", context=512, layers=1))
    wanted = run(capsys, *TEXT, "-m", model)
    found = run(capsys, *TEXT, "-m", model, "--draft", draft)
    assert found["token_ids"] == wanted["token_ids"]
    assert found["draft_gain"] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-N", "0"], "0 answers to one prompt were requested."),
        (["-N", "17"], "17 answers to one prompt were requested."),
        (["-N", "x"], "invalid int value"),
        (["--logprobs", "-1"], "Log probabilities of -1 tokens were requested."),
        (["-N", "2", "--session", "file"], "--session holds one answer"),
    ],
)
def test_bad_numbers_are_refused(
    options: list[str], sentence: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capsys, *TEXT, "-m", model, *options)
