"""Builds the native kernels when their sources are newer, and finds a compiler where there is none.

The app runs without them, on the slow reference; so nothing here ends a command, but it says what
is the matter.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import environment
from environment import ROOT, Trouble, child_environment, last_lines, say, venv_python

SCRIPT = ROOT / "kernels" / "cpu" / "build.py"


def ensure() -> Path | None:
    """The library of native kernels, made first where it must be; None when that is impossible."""
    there = _script("--current").stdout.strip()
    if there:
        return Path(there)
    with environment.locked(ROOT / "build" / "native.lock"):
        # Another command may have built it while this one waited.
        there = _script("--current").stdout.strip() or _build()
    if not there:
        say("The app will run on the reference, which is many times slower.")
    return Path(there) if there else None


def _build() -> str:
    """Where the new library is; "" when neither the machine's compiler nor the package makes it."""
    say("Building the native kernels (a few minutes, once)…")
    made = _script()
    if made.returncode == 0:
        return made.stdout.strip()
    say(last_lines(made.stderr))
    say("Trying the compiler of the package ziglang…")
    try:
        environment.ensure(compiler=True)
    except Trouble as trouble:
        say(str(trouble))
        return ""
    made = _script("--compiler", "zig")
    if made.returncode != 0:
        say(last_lines(made.stderr))
    return made.stdout.strip()


def _script(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kernels/cpu/build.py by .venv's interpreter, whose packages it looks into."""
    return subprocess.run(
        [venv_python(), "-P", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=child_environment(),
        check=False,
    )
