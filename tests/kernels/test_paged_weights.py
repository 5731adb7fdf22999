"""Weights filled in pieces: the same bytes as a weight prepared at once, in memory of any content."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kernels.backends import BACKENDS
from kernels.weights.formats import FORMATS, Format
from kernels.weights.weight import Storage, Weight

BACKEND = BACKENDS.get("cpu", BACKENDS["reference"])
ROWS = (1, 15, 16, 17, 65, 100)
every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)


def stored(format: Format, rows: int, columns: int) -> torch.Tensor:
    """Random bytes of a matrix, as in a file."""
    random = torch.Generator().manual_seed(rows)
    size = rows * format.row_bytes(columns)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=random)


@every_format
@pytest.mark.parametrize("storage", [Storage.BACKEND, Storage.FILE])
def test_a_weight_filled_in_pieces_is_the_prepared_one(format: Format, storage: Storage) -> None:
    if storage is Storage.BACKEND and BACKEND.decodes(format):
        with pytest.raises(ValueError, match=f"would decode {format.name} weights"):
            BACKEND.empty(format, (16, 2 * format.block), torch.empty(1 << 16, dtype=torch.uint8))
        return
    columns = 2 * format.block
    for rows in ROWS:
        data = stored(format, rows, columns)
        source = Weight.from_bytes(data.numpy().tobytes(), format, (rows, columns))
        wanted = BACKEND.prepare(source, storage=storage)
        memory = torch.full((wanted.size_bytes + 64,), 0xA5, dtype=torch.uint8)
        weight = BACKEND.empty(format, (rows, columns), memory, storage)
        assert (weight.layout, weight.shape) == (wanted.layout, wanted.shape)
        assert weight.size_bytes == BACKEND.held_bytes(format, (rows, columns), storage)
        group = 1 if storage is Storage.FILE else BACKEND.group_rows(format)
        row_bytes = format.row_bytes(columns)
        bounds = [*range(0, rows, 2 * group), rows]
        for first, end in reversed(list(pairwise(bounds))):  # in any order
            BACKEND.fill(weight, first, end, data[first * row_bytes : end * row_bytes].clone())
        assert torch.equal(weight.data.view(torch.uint8), wanted.data.view(torch.uint8))
        assert torch.all(memory[wanted.size_bytes :] == 0xA5)


def test_decoded_weights_cannot_be_filled() -> None:
    reference = BACKENDS["reference"]
    q4_0 = next(one for one in FORMATS.values() if one.name == "Q4_0")
    memory = torch.empty(1 << 16, dtype=torch.uint8)
    with pytest.raises(ValueError, match="would decode Q4_0 weights"):
        reference.empty(q4_0, (16, 32), memory)
    with pytest.raises(ValueError, match="would decode Q4_0 weights"):
        BACKEND.empty(q4_0, (16, 32), memory, Storage.FLOAT32)
