"""Names of the CUDA kernels that are launched while a test runs."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.cuda import launch

# Modules that launch kernels.
MODULES = ("launch", "attention", "experts", "adapters", "sampling", "heads", "states")


def launches(monkeypatch: pytest.MonkeyPatch, *, run: bool = True) -> list[str]:
    """Names of the kernels that are launched from now on; without `run` they only are noted."""
    launched: list[str] = []
    launch_kernel = launch.run

    def count(kernel: Any, *operands: object, **constants: object) -> None:
        launched.append(kernel.fn.__name__)
        if run:
            launch_kernel(kernel, *operands, **constants)

    for module in MODULES:
        monkeypatch.setattr(f"kernels.cuda.{module}.run", count)
    return launched
