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


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for Python")
def test_without_a_bundle_the_app_is_found_from_any_folder(tmp_path: Path) -> None:
    program, left = tmp_path / "program", tmp_path / "left"
    code = f'#!/bin/sh\necho "$PWD $*" > {left}.new && mv {left}.new {left}\n'
    program.write_text(code, encoding="utf-8")
    program.chmod(0o755)
    script = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{SCRIPT}".replace(
        "sys.frozen, sys.executable = True,", "sys.executable ="
    )
    subprocess.run([sys.executable, "-c", script, program], cwd=tmp_path, check=True)
    until = time.monotonic() + 10
    while not left.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert left.read_text(encoding="utf-8") == f"{ROOT} -m app\n"
