"""How long the built bundle takes from its start to a window, and to a model that is ready.

Each row is a run with a home of its own, on a display of its own. For a cold start every file of
the bundle is put out of the page cache first, as after the machine was switched on. The table in
bundle.md was made with this.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))

import bundle
import smoke_frozen
from environment import Trouble

RUNS = 5
LIMIT = 120.0  # seconds for one start


def main() -> int:
    """Print a row for warm starts and one for cold ones."""
    if shutil.which("xdotool") is None or shutil.which("Xvfb") is None:
        print("This benchmark looks for the window with xdotool on an Xvfb: install both.")
        return 0
    try:
        program = bundle.built()
    except Trouble as trouble:
        print(trouble)
        return 0
    root = bundle.root(program)
    size, files = bundle.size(root)
    print(f"{size / 1e6:.0f} MB in {files} files; load {os.getloadavg()[0]:.1f}")
    print("start    window: best  median  worst      model ready: best  median  worst")
    start(program)  # what a first start leaves in caches is in all the others
    for name, before in (("warm", lambda: None), ("cold", lambda: evict(root))):
        windows, models = zip(*(start(program, before) for _ in range(RUNS)), strict=True)
        print(f"{name:<8}{row(windows):>27} s{row(models):>38} s")
    return 0


def row(seconds: tuple[float, ...]) -> str:
    """Best, median and worst."""
    found = (min(seconds), statistics.median(seconds), max(seconds))
    return "  ".join(f"{value:6.2f}" for value in found)


def start(program: Path, before: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """Seconds from the start to a visible window, and to settings that name a loaded model."""
    with smoke_frozen.stage() as place:
        before()
        started = time.monotonic()
        with subprocess.Popen([program], env=place.environment) as app:
            try:
                look = ["xdotool", "search", "--onlyvisible", "--name", "Tokonoma"]
                window = wait(lambda: finds(look, place.environment)) - started
                model = wait(lambda: bool(smoke_frozen.last_model(place.home))) - started
                app.send_signal(signal.SIGTERM)
                app.wait(LIMIT)
            finally:
                app.kill()
    return window, model


def finds(look: list[str], environment: dict[str, str]) -> bool:
    """Whether xdotool sees the window."""
    return subprocess.run(look, env=environment, capture_output=True, check=False).returncode == 0


def wait(what: Callable[[], bool]) -> float:
    """The moment at which `what()` was first seen to hold."""
    deadline = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > deadline:
            sys.exit(f"The bundle did not get there within {LIMIT:.0f} seconds.")
        time.sleep(0.01)
    return time.monotonic()


def evict(root: Path) -> None:
    """Put the bundle's files out of the page cache, as far as nobody else uses them."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    sys.exit(main())
