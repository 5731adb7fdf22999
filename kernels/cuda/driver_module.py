"""Compiled module through which Triton calls NVIDIA's driver, for computers without a C compiler.

Triton compiles its file `driver.c` when a kernel is first launched, with the computer's compiler
and Python's headers. A bundle has that module compiled (`packaging/gpu_driver.py`), named by the
hash of the source: it is used for that source alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

LIBRARIES = Path(__file__).parent / "lib"
_SOURCE = Path("backends", "nvidia", "driver.c")  # in the package triton


def file_name(source: bytes) -> str:
    """Name of the module compiled from a source, for this Python."""
    digest = hashlib.sha256(source).hexdigest()[:16]
    return f"cuda_utils-{digest}{sysconfig.get_config_var('EXT_SUFFIX')}"


def compiled(source: bytes, folder: Path = LIBRARIES) -> Path | None:
    """The module compiled from a source; None if there is none."""
    path = folder / file_name(source)
    return path if path.is_file() else None


def is_compiled() -> bool:
    """Whether there is a module for the Triton that is installed."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return False
    try:
        return compiled((Path(found.origin).parent / _SOURCE).read_bytes()) is not None
    except OSError:
        return False


def use() -> None:
    """Give Triton the compiled module instead of letting it compile one."""
    import triton.knobs  # noqa: PLC0415  only where a GPU is used

    triton.knobs.build.impl = _build


def _build(
    name: str,
    source: str,
    folder: str,
    library_folders: list[str],
    include_folders: list[str],
    libraries: list[str],
    *more: Any,
) -> str:
    """Triton's build step: the path of the compiled module. Raises RuntimeError if there is none."""
    found = compiled(Path(source).read_bytes())
    if found is None:
        raise RuntimeError(f"This program has no compiled module {name} of this version of Triton.")
    return str(found)
