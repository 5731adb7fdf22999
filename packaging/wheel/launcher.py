"""Entry points of the installed package `tokonoma`: the window, and the engine's command line.

The packages app, engine and kernels lie in this package's folder, so that an environment shared
with other programs has only one new name; a process of Tokonoma imports them from there.
"""

import runpy
import sys
from pathlib import Path


def open_window() -> None:
    """Open the window, as `python -m app` does."""
    _run("app")


def run_engine() -> None:
    """Run the engine's command line, as `python -m engine` does."""
    _run("engine")


def _run(package: str) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    runpy.run_module(package, run_name="__main__")
