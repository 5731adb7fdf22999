"""Compiles Triton's module for NVIDIA's driver, so that a bundle needs no compiler for a GPU.

Run by .venv's interpreter; see kernels/cuda/driver_module.py.
"""

from __future__ import annotations

import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from environment import Trouble, last_lines

_FOLDER = "triton/backends/nvidia"
SOURCE, HEADER = f"{_FOLDER}/driver.c", f"{_FOLDER}/include/cuda.h"  # in Triton's package
_LIBRARY = "libcuda.so.1"  # of the driver; only its name is needed here


def build(files: Mapping[str, bytes], folder: Path) -> Path:
    """Compile `SOURCE` into `folder`; returns the module's path. Raises Trouble.

    `files` has `SOURCE` and `HEADER` by name.
    """
    from kernels.cpu.build import BuildError, find_compiler  # noqa: PLC0415  not for dev.py
    from kernels.cuda.driver_module import file_name  # noqa: PLC0415

    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").is_file():
        raise Trouble(f"Python's headers are not in {python}: install them, such as python3-dev.")
    try:
        compiler = find_compiler().command
    except BuildError as error:
        raise Trouble(str(error)) from error
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / file_name(files[SOURCE])
    with tempfile.TemporaryDirectory() as work:
        inside = Path(work)
        (inside / "driver.c").write_bytes(files[SOURCE])
        (inside / "cuda.h").write_bytes(files[HEADER])
        (inside / "empty.c").write_bytes(b"")
        stub = inside / _LIBRARY
        plain = (*compiler, "-x", "c", "-shared", "-fPIC", "-O2", "-w")
        _run((*plain, f"-Wl,-soname,{_LIBRARY}", "-o", str(stub), str(inside / "empty.c")))
        places = (f"-I{inside}", f"-I{python}", "-Wl,--no-as-needed", f"-L{inside}")
        link = ("-x", "none", str(stub))
        _run((*plain, *places, "-o", str(made), str(inside / "driver.c"), *link))
    return made


def _run(command: tuple[str, ...]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise Trouble(f"{last_lines(done.stderr)}\nTriton's driver module could not be compiled.")
