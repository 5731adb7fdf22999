"""Builds the native kernels when their sources have changed, installing a compiler if needed.

The app also runs without them, on the slow reference kernels, so a failed build is reported and
does not end the command.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import environment
from environment import ROOT, Trouble, child_environment, last_lines, say, venv_python

SCRIPT = ROOT / "kernels" / "cpu" / "build.py"


def ensure() -> Path | None:
    """Path of the native kernel library, built if needed; None when it cannot be built."""
    library = _script("--current").stdout.strip()
    if library:
        return Path(library)
    with environment.locked(ROOT / "build" / "native.lock"):
        # Another command may have built it while this one waited for the lock.
        library = _script("--current").stdout.strip() or _build()
    if not library:
        say("The app will run on the reference kernels, which are many times slower.")
    return Path(library) if library else None


def _build() -> str:
    """Build the library with the system's compiler, else with ziglang's; its path, or ""."""
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
    """Run kernels/cpu/build.py with .venv's interpreter, where it looks for ziglang."""
    return subprocess.run(
        [venv_python(), "-P", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=child_environment(),
        check=False,
    )
