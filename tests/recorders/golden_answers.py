"""Writes golden/answers.json: the answers of the command line to the recorded prompts.

Run it from the repository: python tests/recorders/golden_answers.py
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(1, str(Path(__file__).parents[1] / "support"))

import recorded_answers
from engine.cli.commands import main


def _answers(case: str, files: dict[str, Path]) -> list[object]:
    with redirect_stdout(io.StringIO()) as out:
        assert main(recorded_answers.arguments(case, files)) == 0, case
    return list(recorded_answers.recorded(json.loads(out.getvalue())))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        written = recorded_answers.write_models(Path(folder))
        found = {case: _answers(case, written) for case in recorded_answers.CASES}
    lines = [f"{json.dumps(case)}: {json.dumps(answers)}" for case, answers in found.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    recorded_answers.GOLDEN.write_text(text, encoding="utf-8")
