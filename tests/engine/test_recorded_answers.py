"""Recorded answers: forty prompts come out of the command line and of the engine token for token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli.commands import main
from recorded_answers import CASES, GOLDEN, arguments, recorded, write_models


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("recorded"))


def test_forty_answers_are_recorded() -> None:
    assert len(CASES) == 40
    assert list(json.loads(GOLDEN.read_text("utf-8"))) == list(CASES)


@pytest.mark.parametrize("case", CASES)
def test_command_line_gives_the_recorded_answers(
    case: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(case, files)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert recorded(printed) == json.loads(GOLDEN.read_text("utf-8"))[case]
