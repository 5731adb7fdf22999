"""The native kernels for macOS, linked and checked on another system (`dev.py test --on macos`).

zig links without Apple's SDK. The library is read, not run: macho.py says what would keep a Mac
from loading it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import environment
from environment import ROOT, Trouble, child_environment, last_lines, say, venv_python
from macos import macho
from result_table import Row

# torch has no wheels for Macs with processors of Intel since 2.3, so there is no app for them.
ARCHITECTURE, OLDEST_SYSTEM = "aarch64", "13.0"


def run(*, every: bool, passed: Sequence[str]) -> list[Row]:
    """Link the library and check it; returns the row of the table. Raises Trouble."""
    del every, passed
    started = time.monotonic()
    library = build(ROOT / "build" / "macos-kernels")
    found = macho.complaints(library, ARCHITECTURE, OLDEST_SYSTEM)
    for complaint in found:
        say(f"{library.name}: {complaint}")
    if not found:
        say(f"A Mac would load {library}.")
    seconds = time.monotonic() - started
    return [Row(f"kernels {ARCHITECTURE}", int(not found), 0, len(found), seconds)]


def build(folder: Path) -> Path:
    """Link the library in `folder` if needed; returns it. Raises Trouble."""
    environment.ensure(compiler=True)
    say("Building the native kernels for macOS (minutes, when their sources have changed)…")
    script = str(ROOT / "kernels" / "cpu" / "build.py")
    options = ("--compiler", "zig", "--target", f"{ARCHITECTURE}-darwin", "--out", str(folder))
    ran = subprocess.run(
        [venv_python(), "-P", script, *options],
        capture_output=True,
        text=True,
        errors="replace",
        env=child_environment(),
        check=False,
    )
    if ran.returncode != 0:
        raise Trouble(f"{last_lines(ran.stderr)}\nThe kernels could not be built, as above.")
    return Path(ran.stdout.strip())
