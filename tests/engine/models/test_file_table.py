"""Tables of which only rows are read: of every format, from split and from damaged files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from blocks import random_blocks
from chosen_backend import ops
from engine.errors import ModelFileError
from engine.models.file_table import FileTable
from kernels.ops import AddRows, Embed, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout
from kernels.weights.formats import Format, by_name
from kernels.weights.weight import Weight

ROWS, COLUMNS, OFFSET = 50, 512, 96


def written(path: Path, format: Format, random: torch.Generator) -> tuple[FileTable, Tensor]:
    """A table in a file, after other bytes, and its values."""
    count = ROWS * format.row_bytes(COLUMNS) // format.size
    data = random_blocks(format, count, random).numpy().tobytes()
    path.write_bytes(b"\xff" * OFFSET + data + b"\xff" * 32)
    table = FileTable(path, OFFSET, format, (ROWS, COLUMNS))
    return table, Weight.from_bytes(data, format, (ROWS, COLUMNS)).dense()


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0", "Q5_K", "Q6_K", "IQ4_NL"])
def test_rows_are_those_of_the_file(name: str, tmp_path: Path, random: torch.Generator) -> None:
    table, values = written(tmp_path / "m", by_name(name), random)
    ids = torch.tensor([49, 0, 7, 49, 7, 7, 1])
    assert torch.equal(table.rows(ids), values[ids])
    assert table.rows(ids[:0]).shape == (0, COLUMNS)


@pytest.mark.parametrize("row", [-1, ROWS])
def test_a_row_out_of_range_is_refused(row: int, tmp_path: Path, random: torch.Generator) -> None:
    table, _ = written(tmp_path / "m", by_name("Q8_0"), random)
    with pytest.raises(IndexError):
        table.rows(torch.tensor([1, row]))


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path, random: torch.Generator) -> None:
    table, _ = written(path := tmp_path / "m", by_name("F32"), random)
    with path.open("r+b") as file:
        file.truncate(OFFSET + 4 * COLUMNS * 10 + 1)
    with pytest.raises(ModelFileError, match="changed since it was opened"):
        table.rows(torch.tensor([9]))
    with pytest.raises(ModelFileError, match="shorter than when it was opened"):
        table.rows(torch.tensor([10]))


def test_a_file_that_was_written_to_is_an_error(tmp_path: Path, random: torch.Generator) -> None:
    """Some rows would be of another table; the file has the same size."""
    table, values = written(path := tmp_path / "m", by_name("F32"), random)
    assert torch.equal(table.rows(torch.tensor([9])), values[9:10])
    with path.open("r+b") as file:
        file.write(bytes(OFFSET + 4 * COLUMNS * ROWS))
    os.utime(path, ns=(1, 1))  # the time of the system is coarser than this test
    with pytest.raises(ModelFileError, match="changed since it was opened"):
        table.rows(torch.tensor([9]))


def test_a_file_that_is_gone_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="m cannot be read: "):
        FileTable(tmp_path / "m", 0, by_name("F32"), (ROWS, COLUMNS))


def test_rows_are_added_to_a_buffer(tmp_path: Path, random: torch.Generator) -> None:
    table, values = written(tmp_path / "m", by_name("Q8_0"), random)
    embedding = torch.randn(ROWS, COLUMNS, generator=random)
    weight = Weight(embedding, by_name("F32"), (ROWS, COLUMNS))
    body = (Embed(weight, "x"), AddRows("x", table, 0.5))
    kv = KVLayout((), torch.float32)
    program = Program(body, (0,), (), "x", "x", {"x": COLUMNS}, kv)
    with ops.only("reference"):
        interpreter = Interpreter(program, ops.BACKENDS["reference"].ops)
    segments = [Segment([3, 3, 49], 0, ()), Segment([0], 5, ())]
    ids = torch.tensor([3, 3, 49, 0])
    expected = embedding[ids].double() + values[ids].double() * 0.5
    torch.testing.assert_close(
        interpreter.hidden(segments).double(), expected, rtol=1e-6, atol=1e-6
    )
