"""Random numbers for kernel tests: fresh on every run, repeatable from the seed a failure shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import blocks
from kernels.formats import Format


@pytest.fixture
def random() -> torch.Generator:
    """A generator with a seed of its own, printed where pytest shows it beside a failure."""
    generator = torch.Generator()
    print(f"seed {generator.seed()}")
    return generator


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
        made = blocks.even_blocks(format, rows * columns // format.block, random)
        return made.view(rows, format.row_bytes(columns))

    return make
