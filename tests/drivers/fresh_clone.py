"""Driver: what a new user sees who clones the repository in a minimal Debian and runs `dev.py run`.

The root has Python and git only: what is missing is installed as each sentence says, until the window
is open. pip in the root has the settings of this machine. Needs root, debootstrap, Xvfb and a
network; a run takes 10 minutes and up to 10 GB in FOLDER. Prints every command with its output.

    sudo python3 tests/drivers/fresh_clone.py FOLDER [--suite trixie] [--kernels FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import smoke_frozen  # noqa: E402
from linux import clean_root, tree  # noqa: E402
from linux.clean_root import HOME, USER, Root  # noqa: E402

_DEV = f"{HOME}/tokonoma/packaging/dev.py"
_PATH = re.compile(r"(?:file://)?(/[^\s']+)")
_SETTING = re.compile(r"^(?:global|:env:)\.(?P<name>[\w-]+)='(?P<value>.*)'$", re.MULTILINE)


def main(arguments: Sequence[str]) -> int:
    """Run the driver; returns the exit status."""
    parser = argparse.ArgumentParser(description="Clone and run in a minimal Debian.")
    parser.add_argument("folder", type=Path, help="keeps the roots")
    parser.add_argument("--suite", choices=clean_root.SUITES, default="trixie")
    parser.add_argument(
        "--kernels", type=Path, help="of built ones, instead of building them there"
    )
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    with clean_root.fresh(folder, options.suite) as root:
        root.install("python3", "git", "ca-certificates")
        subprocess.run(["git", "clone", "-q", "--bare", ROOT, root.folder / "src.git"], check=True)
        root.run("chown", "-R", f"{USER}:{USER}", "/src.git")
        with _pip_settings(root):
            _try(root, options.kernels, folder / f"clone-{options.suite}.png")
    return 0


def _try(root: Root, kernels: Path | None, picture: Path) -> None:
    _user(root, "git", "clone", "-q", "file:///src.git", f"{HOME}/tokonoma")
    _user(root, "python3", _DEV, "run")
    root.install("python3-venv")
    if kernels is not None:
        place = f"{HOME}/tokonoma/kernels/cpu/lib"
        shutil.copytree(kernels, root.folder / place.lstrip("/"), dirs_exist_ok=True)
        root.run("chown", "-R", f"{USER}:{USER}", place)
    _user(root, "python3", _DEV, "run")
    with smoke_frozen.xvfb() as display, clean_root.shared_display(root):
        said = _user(root, "python3", _DEV, "run", DISPLAY=display)
        if packages := re.search(r"apt install (.*)", said):
            root.install(*packages[1].split())
        _user(root, "python3", _DEV, "run", "--", "--smoke", DISPLAY=display)
        _open(root, display, picture)


def _open(root: Root, display: str, picture: Path) -> None:
    """Open the window, wait for the model, and take a picture."""
    with subprocess.Popen(
        [*root.entry(), "python3", _DEV, "run"],
        env=root.environment(USER, DISPLAY=display),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            settings = root.home() / ".config" / "Tokonoma"
            smoke_frozen.wait_for(
                lambda: bool(smoke_frozen.last_model(settings)), process, "the model"
            )
            tree.run("import", "-window", "root", "-display", display, picture)
            print(f"The window is open: {picture}", flush=True)
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def _user(root: Root, *command: str, **settings: str) -> str:
    """Run a command as the user, and print it; returns its output."""
    began = time.monotonic()
    done = subprocess.run(
        [*root.entry(), *command],
        env=root.environment(USER, **settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.monotonic() - began
    print(f"$ {' '.join(command)}\n{done.stdout}", flush=True)
    print(f"  status {done.returncode} after {seconds:.0f} s\n", flush=True)
    return done.stdout


@contextlib.contextmanager
def _pip_settings(root: Root) -> Iterator[None]:
    """Give pip in the root the settings of this machine, and the files that they name."""
    shown = subprocess.run(["pip", "config", "list"], capture_output=True, text=True, check=True)
    settings = dict(_SETTING.findall(shown.stdout))
    lines = ["[global]", *(f"{name} = {value}" for name, value in settings.items())]
    (root.folder / "etc" / "pip.conf").write_text("\n".join(lines), encoding="utf-8")
    with contextlib.ExitStack() as stack:
        for path in map(Path, _PATH.findall("\n".join(settings.values()))):
            target = root.folder / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                shutil.copy(path, target)
            elif path.is_dir() and not target.exists():
                # The folder beside it has the files that a local index refers to.
                shown_folder, place = path.parent, target.parent
                subprocess.run(["mount", "--bind", "-o", "ro", shown_folder, place], check=True)
                stack.callback(subprocess.run, ["umount", place], check=False)
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
