"""Random numbers for kernel tests: fresh on every run, repeatable from the seed a failure shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernels.formats import Format

# Where a block holds floats, as (last byte, mask of its exponent bits) of each.
_HALF = 0x7C
_FLOATS = {
    "F32": ((3, 0x7F),),
    "F16": ((1, _HALF),),
    "BF16": ((1, 0x7F),),
    "Q4_1": ((1, _HALF), (3, _HALF)),
    "Q5_1": ((1, _HALF), (3, _HALF)),
    "Q4_K": ((1, _HALF), (3, _HALF)),
    "Q5_K": ((1, _HALF), (3, _HALF)),
    "Q6_K": ((209, _HALF),),
}
_SCALE_FIRST = ((1, _HALF),)


@pytest.fixture
def random() -> torch.Generator:
    """A generator with a seed of its own, printed where pytest shows it beside a failure."""
    generator = torch.Generator()
    print(f"seed {generator.seed()}")
    return generator


@pytest.fixture
def random_blocks(random: torch.Generator) -> Callable[[Format, int], Tensor]:
    """Makes uint8 [count, size]: random bytes, every float in them finite, the first all zero."""

    def make(format: Format, count: int) -> Tensor:
        shape = (count, format.size)
        blocks = torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
        for byte, exponent in _FLOATS.get(format.name, _SCALE_FIRST):
            full = blocks[:, byte] & exponent == exponent  # infinite or not a number
            blocks[full, byte] &= 0xBF
        blocks[0] = 0
        return blocks

    return make


@pytest.fixture
def random_rows(
    random_blocks: Callable[[Format, int], Tensor],
) -> Callable[[Format, int, int], Tensor]:
    """Makes packed rows uint8 [rows, row_bytes] of finite weights."""

    def make(format: Format, rows: int, columns: int) -> Tensor:
        blocks = random_blocks(format, rows * columns // format.block)
        return blocks.view(rows, format.row_bytes(columns))

    return make
