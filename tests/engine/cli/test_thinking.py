"""Command line: thinking on, off, and limited to a number of tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import thinkers
from engine.cli.commands import main
from thinkers import FAMILIES, WORD


@pytest.fixture(params=["gpt-oss", "DeepSeek-R1", "Qwen3"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(thinkers.write(tmp_path / "tiny.gguf", FAMILIES[request.param]))


def chat(model: str, thinking: str, *more: str) -> list[str]:
    return [
        *("chat", "-m", model, "-p", "hello", "-n", "5", "--temp", "0"),
        *("--thinking", thinking, *more),
    ]


def test_a_budget_holds(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(chat(model, "17", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    thoughts, _, answer = found["text"].removeprefix("<think>").partition("</think>")
    assert (thoughts.strip(), answer.strip()) == (WORD * 17, WORD * 5)
    assert (found["thought_tokens"], found["thought_budget_reached"]) == (17, True)
    assert main(chat(model, "17")) == 0
    assert "(17 of thoughts, their budget)" in capsys.readouterr().err


def test_thinking_is_switched(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for off in ("off", "0"):
        assert main(chat(model, off, "--json")) == 0
        assert json.loads(capsys.readouterr().out)["text"].strip() == WORD * 5
    assert main(chat(model, "on", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"].startswith("<think>")
    assert not found["thought_budget_reached"]


@pytest.mark.parametrize("wrong", ["-3", "deep", "1.5", "²"])
def test_another_word_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "-m", "m.gguf", "-p", "hello", f"--thinking={wrong}"]) == 1
    assert "--thinking" in capsys.readouterr().err
