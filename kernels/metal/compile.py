"""Compiles the shaders of the Metal backend, at their first use and once a process."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

SHADERS = Path(__file__).parent / "shaders"
PRELUDE = "prelude"

_INCLUDE = re.compile(r'^#include "(\w+)\.metal"$', re.MULTILINE)


@cache
def source(file: str) -> str:
    """The text of shaders/`file`.metal, with the files that it includes."""
    text = (SHADERS / f"{file}.metal").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: source(found[1]), text)


@cache
def library(file: str, *settings: tuple[str, str | int]) -> Any:
    """The kernels of a file as attributes, compiled with macros set before its text.

    A kernel takes tensors of the device, int for `constant long&` and float for `constant float&`,
    or lists of either for pointers, then `threads` and `group_size`. Raises RuntimeError with the
    compiler's message.
    """
    macros = "".join(f"#define {name} {value}\n" for name, value in settings)
    return torch.mps.compile_shader(f"{source(PRELUDE)}\n{macros}{source(file)}")
