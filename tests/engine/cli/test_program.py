"""`info --program` prints the program of a model file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny
import tiny_encoders
from engine.cli.commands import main


def test_the_program_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tiny.write(tmp_path / "a model.gguf"))
    command = ["info", "-m", path, "--program", "--backend", "reference"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.startswith("a model, reference\n\nbuffers [columns]: stream [64]")
    assert "layer 0\n  Norm " in text
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["program"] == text.splitlines()[2:]


def test_the_program_of_an_encoder_ends_with_its_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tiny_encoders.write(tmp_path / "m.gguf"))
    assert main(["info", "-m", path, "--program", "--backend", "reference"]) == 0
    text = capsys.readouterr().out
    assert "causal=False" in text
    assert "logits" not in text
