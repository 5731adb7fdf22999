"""The version before stays when the Windows installer replaces it: compiled by NSIS, run by Wine."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.release import InstallKind
from app.updates.history import History, is_folder_of_app
from app.updates.install import Installed

MACROS = Path(__file__).parents[1] / "packaging" / "windows" / "former.nsh"
FILES = 200
SCRIPT = """
Target amd64-unicode
Unicode true
Name "Tokonoma"
OutFile "{out}"
RequestExecutionLevel user
InstallDir "{folder}"
SilentInstall silent
!include "{macros}"
Section
  SetOutPath $INSTDIR
  !insertmacro KeepFormer "It is open."
  File /r "{files}/*.*"
  {fail}
SectionEnd
Function .onInstFailed
  !insertmacro RestoreFormer
FunctionEnd
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("makensis") and shutil.which("wine")), reason="needs NSIS and Wine"
    ),
]


class Machine:
    """A Wine prefix with an installer for each version."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.settings = {
            **os.environ, "WINEPREFIX": str(base / "prefix"), "WINEARCH": "win64",
            "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml=",
        }  # fmt: skip
        self.app = base / "prefix" / "drive_c" / "Tokonoma"
        boot = subprocess.run(
            ["wine", "wineboot", "-i"], env=self.settings, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert (base / "prefix" / "drive_c").is_dir(), boot.stderr
        for version in ("1", "2", "3"):
            self._compile(version)
        self._compile("9", fail='Abort "planted"')

    def _compile(self, version: str, fail: str = "") -> None:
        files = self.base / f"files{version}"
        (files / "_internal").mkdir(parents=True)
        (files / "Tokonoma.exe").write_text(version, encoding="utf-8")
        for number in range(FILES):
            (files / "_internal" / f"{number}.dll").write_bytes(version.encode() * 20_000)
        script = self.base / f"{version}.nsi"
        values = {"macros": MACROS, "files": files, "out": self.setup(version), "fail": fail}
        script.write_text(SCRIPT.format(folder="C:\\Tokonoma", **values), encoding="utf-8")
        subprocess.run(["makensis", "-V1", str(script)], check=True, capture_output=True)

    def setup(self, version: str) -> Path:
        return self.base / f"setup-{version}.exe"

    def start(self, version: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["wine", str(self.setup(version))], env=self.settings, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def install(self, version: str) -> int:
        return self.start(version).wait(120)

    def whole(self, folder: Path) -> str:
        """The version of a folder; "" if it is not whole."""
        if not is_folder_of_app(folder):
            return ""
        version = (folder / "Tokonoma.exe").read_text(encoding="utf-8")
        files = [folder / "_internal" / f"{number}.dll" for number in range(FILES)]
        wanted = version.encode() * 20_000
        return version if all(f.is_file() and f.read_bytes() == wanted for f in files) else ""

    @property
    def versions(self) -> tuple[str, str]:
        """The installed version and the former one, as far as they are whole."""
        return self.whole(self.app), self.whole(self.app / "former")

    def answer(self, version: str) -> None:
        """The first answer of the installed version, at its next start."""
        here = Installed(InstallKind.SETUP, "x86_64", self.app / "Tokonoma.exe")
        history = History(self.base / "updates.json", f"0.{version}.0", here)
        history.note_start()
        history.note_answer()
        history.clean()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("wine"))
    yield made
    subprocess.run(["wineserver", "-k"], env=made.settings, check=False)


@pytest.fixture
def fresh(machine: Machine) -> Machine:
    """The machine with version 1 installed, which has answered."""
    shutil.rmtree(machine.app, ignore_errors=True)
    (machine.base / "updates.json").unlink(missing_ok=True)
    assert machine.install("1") == 0
    machine.answer("1")
    assert machine.versions == ("1", "")
    return machine


def test_the_former_version_stays_until_the_new_one_has_answered(fresh: Machine) -> None:
    assert fresh.install("2") == 0
    assert fresh.versions == ("2", "1")
    assert fresh.install("3") == 0  # 2 has not answered: 1 is still the one that did
    assert fresh.versions == ("3", "1")
    fresh.answer("3")
    assert fresh.versions == ("3", "")
    assert fresh.install("2") == 0  # a downgrade is kept in the same way
    assert fresh.versions == ("2", "3")


def test_an_installation_that_fails_gives_the_former_version_back(fresh: Machine) -> None:
    assert fresh.install("9") != 0
    assert fresh.versions == ("1", "")


def test_an_installation_beside_a_running_app_changes_nothing(fresh: Machine) -> None:
    holder = fresh.base / "holder.bat"
    # A program whose working folder is in the folder keeps it from being renamed, as DLLs do.
    holder.write_text(
        "@cd /d C:\\Tokonoma\\_internal\r\n@ping -n 60 127.0.0.1 >nul\r\n", encoding="utf-8"
    )
    running = subprocess.Popen(
        ["wine", "cmd", "/c", str(holder)], env=fresh.settings, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(3)
        code = fresh.install("2")
    finally:
        running.kill()
        running.wait()
    assert code != 0
    assert fresh.versions[0] == "1"


def test_an_installer_that_is_killed_leaves_a_version_that_starts(fresh: Machine) -> None:
    random.seed(3)
    for _ in range(8):
        killed = fresh.start("2")
        time.sleep(random.uniform(0.2, 1.2))
        killed.kill()
        killed.wait()
        time.sleep(0.2)
        here, former = fresh.versions
        assert "1" in (here, former)  # 2 has not answered
    assert fresh.install("2") == 0
    assert fresh.versions == ("2", "1")
