"""Switching to a new version with the archive's install.sh, also when it is killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "packaging" / "linux" / "install.sh"
SHARE = SCRIPT.parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the archive is for Linux")


def unpacked(folder: Path) -> Path:
    """The folder of an archive; its program prints its folder's name."""
    share = folder / "share"
    for place in ("applications", "mime/packages", "icons/hicolor/48x48/apps"):
        (share / place).mkdir(parents=True)
    shutil.copy(SHARE / "tokonoma.desktop", share / "applications" / "tokonoma.desktop")
    shutil.copy(SHARE / "tokonoma.mime.xml", share / "mime" / "packages" / "tokonoma.xml")
    (share / "icons/hicolor/48x48/apps/tokonoma.png").write_bytes(b"png")
    shutil.copy(SCRIPT, folder)
    program = folder / "tokonoma"
    program.write_text(f"#!/bin/sh\necho {folder.name}\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


def install(folder: Path, home: Path, kill_after: float | None = None) -> None:
    """Run install.sh in its own process group, and kill all of it after so many seconds."""
    settings = {"HOME": str(home), "PATH": os.environ["PATH"]}
    run = subprocess.Popen(
        [str(folder / "install.sh")], env=settings, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    if kill_after is not None:
        time.sleep(kill_after)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    else:
        assert run.wait(60) == 0


def started(home: Path) -> tuple[str, str]:
    """The versions that the command and the menu start."""
    command = home / ".local/bin/tokonoma"
    by_name = subprocess.run([str(command)], capture_output=True, text=True, check=True)
    entry = (home / ".local/share/applications/tokonoma.desktop").read_text(encoding="utf-8")
    (line,) = [each for each in entry.splitlines() if each.startswith("Exec=")]
    program = Path(line.removeprefix("Exec=").split('"')[1])
    assert program.is_file()
    return by_name.stdout.strip(), program.parent.name


def test_the_new_version_is_started_and_the_former_stays(tmp_path: Path) -> None:
    old, new = (unpacked(tmp_path / f"Tokonoma-0.{number}.0") for number in (1, 2))
    install(old, tmp_path / "home")
    assert started(tmp_path / "home") == (old.name, old.name)
    install(new, tmp_path / "home")
    assert started(tmp_path / "home") == (new.name, new.name)
    assert (old / "tokonoma").is_file()
    install(old, tmp_path / "home")  # and back
    assert started(tmp_path / "home") == (old.name, old.name)


def test_a_switch_that_is_killed_leaves_one_that_starts(tmp_path: Path) -> None:
    random.seed(11)
    home = tmp_path / "home"
    folders = [unpacked(tmp_path / f"Tokonoma-0.{number}.0") for number in (1, 2)]
    install(folders[0], home)
    for number in range(1, 13):
        install(folders[number % 2], home, kill_after=random.uniform(0.0, 0.06))
        names = {folder.name for folder in folders}
        assert set(started(home)) <= names
    install(folders[1], home)
    assert started(home) == (folders[1].name, folders[1].name)
    assert list(home.rglob("*.part")) == []
