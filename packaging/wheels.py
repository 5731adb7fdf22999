"""Builds wheels of the program with its native kernels, for this platform or others.

hatchling builds them, as it does for `pip install .`; its hook (wheel/build_hook.py) compiles the
kernels. Wheels are reproducible: the same sources and compiler give the same bytes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import environment
from environment import ROOT, Trouble, child_environment, last_lines, venv_python

FOLDER = ROOT / "build" / "wheels"
PLATFORM = "TOKONOMA_WHEEL_PLATFORM"  # read by the hook


def build(folder: Path = FOLDER, platform: str = "") -> Path:
    """Build the wheel of this platform, or of another by its tag; returns it. Raises Trouble."""
    environment.ensure(compiler=bool(platform))
    ran = subprocess.run(
        [venv_python(), "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        env=child_environment(**({PLATFORM: platform} if platform else {})),
        check=False,
    )
    if ran.returncode != 0:
        raise Trouble(f"{last_lines(ran.stdout + ran.stderr)}\nThe wheel could not be built.")
    return Path(ran.stdout.strip().splitlines()[-1])
