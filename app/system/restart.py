"""Restart of the app: asked for by the window, done when the process has ended as usual."""

from __future__ import annotations

import os
import subprocess
import sys

_wanted = False


def request(*, wanted: bool = True) -> None:
    """Start the app again when this process ends; `wanted=False` takes that back."""
    global _wanted
    _wanted = wanted


def start_again() -> None:
    """Start the app again if that was asked for; the last thing that a process does."""
    if not _wanted:
        return
    command = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "app"]
    subprocess.Popen(
        command,
        # A bundle's new process is not to be taken for one of this process's own.
        env={**os.environ, "PYINSTALLER_RESET_ENVIRONMENT": "1"},
        stdin=subprocess.DEVNULL,
        start_new_session=sys.platform != "win32",
    )
