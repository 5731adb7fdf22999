"""Builds wheels of the program with its native kernels, for this platform or others.

hatchling builds them, as it does for `pip install .`; its hook (wheel/build_hook.py) compiles the
kernels. Wheels are reproducible: the same sources and compiler give the same bytes.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import environment
from environment import ROOT, Trouble, child_environment, last_lines, venv_python

FOLDER = ROOT / "build" / "wheels"
PLATFORM = "TOKONOMA_WHEEL_PLATFORM"  # read by the hook
_HOOK = ROOT / "packaging" / "wheel" / "build_hook.py"
_SYSTEMS = {"win32": "windows"}  # a value of sys.platform to the hook's name, where they differ


def platforms(only: str = "") -> list[str]:
    """The tags that the hook knows; those of one system, a value of sys.platform, if it is named."""
    rows = re.findall(r'^    "(\w+)": \("\w+", "(\w+)"\),$', _HOOK.read_text("utf-8"), re.MULTILINE)
    return [tag for tag, system in rows if only in ("", system) or _SYSTEMS.get(only) == system]


def build(folder: Path = FOLDER, platform: str = "") -> Path:
    """Build the wheel of this platform, or of another by its tag; returns it. Raises Trouble."""
    environment.ensure(compiler=bool(platform))
    return run_hatchling(folder, platform)


def run_hatchling(folder: Path, platform: str = "") -> Path:
    """As `build`, with what .venv has. Raises Trouble."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        ran = subprocess.run(
            [venv_python(), "-m", "hatchling", "build", "--target", "wheel", "--directory", work],
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            env=child_environment(**({PLATFORM: platform} if platform else {})),
            check=False,
        )
        if ran.returncode != 0:
            said = last_lines(ran.stdout + ran.stderr)
            raise Trouble(f"{said}\nThe wheel could not be built.")
        (made,) = Path(work).glob("*.whl")
        return made.replace(folder / made.name)
