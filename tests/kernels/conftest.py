"""Fixtures of kernel tests: every instruction set, every backend, and random blocks of all formats."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import blocks
from chosen_backend import ops
from kernels.cpu import library
from kernels.weights.formats import Format

# Triton, and the guarded memory of Metal's shaders on the processor, are not made for Windows.
collect_ignore = ["cuda", "metal"] if sys.platform == "win32" else []

# Those of this processor, the best first: the others are run by the sweeps.
INSTRUCTION_SETS = [
    pytest.param(name, marks=[pytest.mark.sweep] if at else [])
    for at, name in enumerate(library.instruction_sets())
]


@pytest.fixture(params=INSTRUCTION_SETS or ("none",))
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every instruction set this processor has, one after the other; threads are put back too."""
    if not library.available():
        pytest.skip(library.reason())
    before, threads = library.instruction_set(), library.threads()
    library.use(request.param)
    yield request.param
    library.use(before)
    library.set_threads(threads)


@pytest.fixture(params=("reference", *INSTRUCTION_SETS))
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The reference, then the native kernels on every instruction set: what runs ops meanwhile."""
    if request.param == "reference":
        with ops.only("reference"):
            yield "reference"
        return
    before = library.instruction_set()
    library.use(request.param)
    with ops.only("cpu"):
        yield "cpu"
    library.use(before)


@pytest.fixture
def random_blocks(random: torch.Generator) -> Callable[[Format, int], Tensor]:
    """Makes uint8 [count, size]: random bytes, every float in them finite, the first all zero."""
    return lambda format, count: blocks.random_blocks(format, count, random)


@pytest.fixture
def random_rows(random: torch.Generator) -> Callable[[Format, int, int], Tensor]:
    """Makes packed rows uint8 [rows, row_bytes] of finite weights."""

    def make(format: Format, rows: int, columns: int) -> Tensor:
        made = blocks.random_blocks(format, rows * columns // format.block, random)
        return made.view(rows, format.row_bytes(columns))

    return make


@pytest.fixture
def even_rows(random: torch.Generator) -> Callable[[Format, int, int], Tensor]:
    """Makes packed rows uint8 [rows, row_bytes] of weights of like size, none drowning others."""

    def make(format: Format, rows: int, columns: int) -> Tensor:
        made = blocks.similar_scale_blocks(format, rows * columns // format.block, random)
        return made.view(rows, format.row_bytes(columns))

    return make
