"""Smoke tests of a built bundle: one question to the bundled model, and a second start.

The first test runs the app with `--smoke`, which asks one question and opens the pages. The second
starts it twice: the second process must pass its file to the first. Each test has an empty home
folder, and fails on every line on stderr that is not listed here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from environment import Trouble

STARTER = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Lines allowed on stderr, and why they are no fault of the app.
HARMLESS = (
    (
        r"This plugin does not support propagateSizeHints\(\)",
        "Qt's offscreen platform prints it for every window with a minimum size",
    ),
    (
        r"This plugin does not support raise\(\)",
        "Qt's offscreen platform prints it when a second start brings the window to the front",
    ),
)
_LIMIT = 300  # seconds for one run; a first start reads 500 MB from the disk
_STEP_TIMEOUT_SECONDS = 120  # for the window to appear, and for each step after it


@dataclass(frozen=True)
class Stage:
    """An empty home folder, and the environment that makes the app use it."""

    home: Path
    environment: dict[str, str]


def smoke(program: Path) -> str:
    """Ask the bundled model one question; returns the app's output. Raises Trouble."""
    with stage() as place:
        ran = subprocess.run(
            [program, "--smoke"],
            env=place.environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT,
            check=False,
        )
    check_errors(ran.stderr)
    if ran.returncode != 0:
        raise Trouble(f"The bundle's smoke test ended with status {ran.returncode}:\n{ran.stdout}")
    return ran.stdout.strip()


def forwards(program: Path) -> None:
    """Start the app twice; the second must pass its file to the first and exit. Raises Trouble."""
    with stage() as place:
        model = place.home / "second model.gguf"
        model.symlink_to(_bundled_starter(program))
        errors = place.home / "errors.txt"
        with (
            errors.open("w", encoding="utf-8") as sink,
            subprocess.Popen([program], env=place.environment, stderr=sink) as first,
        ):
            try:
                wait_for(
                    lambda: any((place.home / "tmp").glob("tokonoma-*")),
                    first,
                    "its instance socket",
                )
                second = subprocess.run(
                    [program, model],
                    env=place.environment,
                    capture_output=True,
                    text=True,
                    timeout=_STEP_TIMEOUT_SECONDS,
                    check=False,
                )
                if second.returncode != 0 or "already open" not in second.stdout:
                    raise Trouble(f"The second start failed:\n{second.stdout}")
                check_errors(second.stderr)
                wait_for(lambda: last_model(place.home) == str(model), first, "the second model")
                first.send_signal(signal.SIGTERM)
                status = first.wait(_STEP_TIMEOUT_SECONDS)
            finally:
                first.kill()
        check_errors(errors.read_text(encoding="utf-8"))
        if status != 0:
            raise Trouble(f"After SIGTERM the app exited with status {status}, not 0.")


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """A temporary home folder, and a display: the current one, Xvfb, or Qt's offscreen platform."""
    with tempfile.TemporaryDirectory(prefix="tokonoma-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        for name in ("run", "tmp"):
            (home / name).mkdir(mode=0o700)
        kept = ("PATH", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "SYSTEMROOT", "TERM")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {
            "HOME": folder,
            "LANG": "C.UTF-8",
            "TMPDIR": str(home / "tmp"),
            "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", str(home / "run")),
        }
        with contextlib.ExitStack() as stack:
            if not {"DISPLAY", "WAYLAND_DISPLAY"} & environment.keys():
                if shutil.which("Xvfb"):
                    environment["DISPLAY"] = stack.enter_context(xvfb())
                else:
                    environment["QT_QPA_PLATFORM"] = "offscreen"
            yield Stage(home, environment)


@contextlib.contextmanager
def xvfb(*before: str) -> Iterator[str]:
    """Run Xvfb and yield its display name; `before` is put before its command line."""
    read, write = os.pipe()
    # Without -noreset the server resets when its last window closes, and refuses connections then.
    options = ["-screen", "0", "1280x900x24", "-nolisten", "tcp", "-noreset"]
    command = [*before, "Xvfb", "-displayfd", str(write), *options]
    with subprocess.Popen(
        command, pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        os.close(write)
        try:
            with os.fdopen(read) as answer:
                number = answer.readline().strip()
            if not number:
                raise Trouble("Xvfb does not start; run `Xvfb :99` to see why, or use a display.")
            yield f":{number}"
        finally:
            server.terminate()


def check_errors(text: str) -> None:
    """Raise Trouble when stderr has a line that is not listed as harmless."""
    unlisted = [
        line
        for line in text.splitlines()
        if line.strip() and not any(re.search(pattern, line) for pattern, _ in HARMLESS)
    ]
    if unlisted:
        raise Trouble("The bundle printed unexpected lines on stderr:\n" + "\n".join(unlisted))


def _bundled_starter(program: Path) -> Path:
    found = sorted(program.parent.parent.rglob(STARTER)) or [program.parent / STARTER]
    return found[0]


def last_model(home: Path) -> str:
    """The last loaded model according to the settings file, "" without one."""
    for file in home.rglob("settings.json"):
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(file.read_text(encoding="utf-8")).get("last_model", ""))
    return ""


def wait_for(
    condition: Callable[[], bool],
    process: subprocess.Popen[bytes],
    name: str,
    limit: float = _STEP_TIMEOUT_SECONDS,
) -> None:
    """Wait until the condition is true. Raises Trouble when the app exits first, or on time-out.

    `limit` is in seconds.
    """
    deadline = time.monotonic() + limit
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Trouble(f"The bundle was started, but {name} never appeared.")
        time.sleep(0.05)
