"""DLLs in the working folder and in PATH are not loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.system.dll_search import leave_out_working_folder

ROOT = Path(__file__).parents[3]
PLANTED = "version_of_tokonoma_test.dll"

# `LoadLibraryExW` without flags, and with those of a library that loads its plugins by path.
TRIES = """
import ctypes, sys
kernel = ctypes.WinDLL("kernel32")
kernel.LoadLibraryExW.restype = ctypes.c_void_p
kernel.LoadLibraryExW.argtypes = (ctypes.c_wchar_p, ctypes.c_void_p, ctypes.c_uint32)
print([bool(kernel.LoadLibraryExW(sys.argv[1], None, flags)) for flags in (0, 8)])
"""
STARTED = "import app.__main__\n"


class Kernel:
    """The three functions of kernel32, which record what they are called with."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.calls: list[object] = []

    def SetDefaultDllDirectories(self, flags: int) -> int:  # noqa: N802
        self.calls.append(flags)
        return 1

    def GetDllDirectoryW(self, size: int, _text: None) -> int:  # noqa: N802
        assert size == 0
        return len(self.folder) + 1  # what it needs: the name and its end mark

    def SetDllDirectoryW(self, folder: str) -> int:  # noqa: N802
        self.calls.append(folder)
        return 1


def test_the_working_folder_is_left_out() -> None:
    kernel = Kernel("")
    leave_out_working_folder(kernel)
    assert kernel.calls == [0x1000, ""]


def test_the_folder_of_a_bundle_stays() -> None:
    kernel = Kernel(r"C:\bundle")
    leave_out_working_folder(kernel)
    assert kernel.calls == [0x1000]


@pytest.mark.skipif(sys.platform != "win32", reason="only Windows looks there for DLLs")
@pytest.mark.parametrize("place", ["working folder", "PATH"])
def test_a_planted_dll_is_not_loaded(tmp_path: Path, place: str) -> None:
    source = next(Path(sys.base_prefix).glob("vcruntime140.dll"))
    shutil.copy(source, tmp_path / PLANTED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    folder = tmp_path
    if place == "PATH":
        folder = tmp_path / "other"
        folder.mkdir()
        environment["PATH"] = f"{tmp_path};{environment['PATH']}"

    def loaded(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, PLANTED],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert loaded(TRIES).startswith("[True"), "Windows loads none: nothing is tested"
    assert loaded(STARTED + TRIES) == "[False, False]"
