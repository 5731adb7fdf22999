"""aider against the server: one scripted edit, which the model has by heart.

python aider_edit.py ADDRESS MODEL
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

BASE, MODEL = f"{sys.argv[1]}/v1", sys.argv[2]
OPTIONS = [
    "--no-git",
    "--yes-always",
    "--no-check-update",
    "--no-show-model-warnings",
    "--analytics-disable",
    "--no-pretty",
    "--no-fancy-input",
    "--edit-format",
    "whole",
    "--map-tokens",
    "0",
    "--no-show-release-notes",
    "--no-detect-urls",
]

with tempfile.TemporaryDirectory() as home:
    # aider takes prices of models from its cache, and else asks for them in the network.
    prices = Path(home, ".aider", "caches", "model_prices_and_context_window.json")
    prices.parent.mkdir(parents=True)
    prices.write_text('{"none": {}}', encoding="utf-8")
    folder = Path(home, "project")
    folder.mkdir()
    notes = folder / "notes.py"
    notes.write_text('greeting = "hi"\n', encoding="utf-8")
    command = [sys.executable, "-m", "aider", "--model", f"openai/{MODEL}", *OPTIONS]
    found = subprocess.run(
        [*command, "--message", 'Make the greeting "bye".', "notes.py"],
        cwd=folder,
        env=os.environ
        | {"HOME": home, "OPENAI_API_BASE": BASE, "OPENAI_API_KEY": "x"}
        | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    output = found.stdout + found.stderr
    assert found.returncode == 0, output
    assert notes.read_text(encoding="utf-8") == 'greeting = "bye"\n', output
    assert "Applied edit to notes.py" in output, output
    assert "Error" not in output, output
