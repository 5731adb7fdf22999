"""Microsoft's C++ runtime: DLLs that a clean Windows lacks, and Wine has in versions with faults."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from environment import run_quietly, venv_python

WHEELS = Path(__file__).resolve().with_name("runtime.txt")


def unpack(work: Path) -> Path:
    """Download the pinned wheel and unpack it, as it is, in a folder; returns that. Raises Trouble.

    Not installed by pip: for another system it leaves a list of files that names none of them.
    """
    folder = work / "runtime"
    with tempfile.TemporaryDirectory(dir=work) as downloads:
        options = ("--no-deps", "--require-hashes", "-d", downloads, *wheel_tags())
        pip = (str(venv_python()), "-m", "pip", "download", "-q")
        run_quietly(*pip, *options, "-r", str(WHEELS))
        for wheel in Path(downloads).glob("*.whl"):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
    return folder


def wheel_tags() -> list[str]:
    """Options of pip that choose the wheels of Python 3.11 on 64-bit Windows."""
    abis = ("cp311", "abi3", "none")
    options = ["--platform", "win_amd64", "--python-version", "3.11", "--implementation", "cp"]
    return [*options, *(part for abi in abis for part in ("--abi", abi))]
