"""Restart of the app, or start of its installer: done when the process has ended as usual."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_command: list[str] = []


def request(*, wanted: bool = True, program: Path | None = None) -> None:
    """Start the app again when this process ends, or a program; `wanted=False` takes that back."""
    global _command
    app = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "app"]
    _command = ([str(program)] if program is not None else app) if wanted else []


def start_again() -> None:
    """Start what was asked for, if anything; the last thing that a process does."""
    if not _command:
        return
    with suppress(OSError):  # there is no window any more to say so
        subprocess.Popen(
            _command,
            # Where `-m app` is found, in an installed package too; a bundle's folder stays free.
            cwd=None if getattr(sys, "frozen", False) else Path(__file__).parents[2],
            # A bundle's new process is not to be taken for one of this process's own.
            env={**os.environ, "PYINSTALLER_RESET_ENVIRONMENT": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=sys.platform != "win32",
        )
