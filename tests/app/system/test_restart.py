"""Restart of the app, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# A process that ends as the app does; the new one leaves a file instead of a window.
SCRIPT = """
import sys
from app.system import restart
sys.frozen, sys.executable = True, sys.argv[1]
from pathlib import Path
if "program" in sys.argv:
    sys.executable = "none"
    restart.request(program=Path(sys.argv[1]))
else:
    restart.request(wanted=True)
if "stay" in sys.argv:
    restart.request(wanted=False)
restart.start_again()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for the app")
def test_the_new_process_is_started_once_it_is_asked_for(tmp_path: Path) -> None:
    program, left = tmp_path / "program", tmp_path / "left"
    program.write_text(
        f'#!/bin/sh\necho "$PYINSTALLER_RESET_ENVIRONMENT" > {left}\n', encoding="utf-8"
    )
    program.chmod(0o755)
    for word in ("stay", "go", "program"):
        left.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-c", SCRIPT, program, word], cwd=ROOT, check=True)
        if word == "stay":
            assert not left.exists()
            continue
        until = time.monotonic() + 10
        while not (left.exists() and left.read_text(encoding="utf-8")) and time.monotonic() < until:
            time.sleep(0.01)
        assert left.read_text(encoding="utf-8") == "1\n"
