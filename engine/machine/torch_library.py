"""Loading torch without freezing the window."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

from engine.machine import gpu_support


def load() -> None:
    """Load torch's largest library without holding the GIL, then import torch.

    `import torch` alone would hold the GIL for a third of a second while the library is linked,
    and freeze the window. The torch of installed GPU support comes first; if it cannot be
    imported, the program's own is.
    """
    try:
        _import()
    except Exception as error:
        if not gpu_support.give_up(error):
            raise
        _import()
    gpu_support.load()


def _import() -> None:
    if sys.platform == "linux" and (spec := importlib.util.find_spec("torch")) and spec.origin:
        library = Path(spec.origin).parent / "lib" / "libtorch_cpu.so"
        if library.exists():
            dlopen = ctypes.CDLL(None).dlopen
            dlopen.restype = ctypes.c_void_p
            dlopen(str(library).encode(), 0x2 | 0x100)  # RTLD_NOW | RTLD_GLOBAL
    import torch

    torch.set_grad_enabled(False)
