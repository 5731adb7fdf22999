"""Microsoft's C++ runtime for the bundle: DLLs that Wine has built in and a clean Windows lacks."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from environment import run_quietly, venv_python
from windows import wine

WHEELS = Path(__file__).resolve().with_name("runtime.txt")


def unpack(work: Path) -> Path:
    """Download the pinned wheel and unpack it, as it is, in a folder; returns that. Raises Trouble.

    Not installed by pip: for another system it leaves a list of files that names none of them.
    """
    folder = work / "runtime"
    with tempfile.TemporaryDirectory(dir=work) as downloads:
        options = ("--no-deps", "--require-hashes", "-d", downloads, *wine.wheel_tags())
        pip = (str(venv_python()), "-m", "pip", "download", "-q")
        run_quietly(*pip, *options, "-r", str(WHEELS))
        for wheel in Path(downloads).glob("*.whl"):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
    return folder
