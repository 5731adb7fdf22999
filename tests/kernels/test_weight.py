"""Weight: views of a mapped file, checked against their shape, decoded whole or by rows."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from blocks import decoded
from chosen_backend import ops
from gpu_results import check_close
from kernels.weights.formats import FORMATS, Format, by_name
from kernels.weights.weight import Weight

LayerKV = Callable[[Format, int, int], Tensor]

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)


def mapped(path: Path, data: bytes) -> memoryview:
    path.write_bytes(data)
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@every_format
def test_is_a_view_of_the_mapped_file(format: Format, random_rows: LayerKV, tmp_path: Path) -> None:
    columns = 2 * format.block
    packed = random_rows(format, 3, columns)
    buffer = mapped(tmp_path / "weights", bytes(32) + packed.numpy().tobytes())
    weight = Weight.from_bytes(buffer[32:], format, (3, columns))
    assert weight.data.data_ptr() == np.frombuffer(buffer, dtype=np.uint8).ctypes.data + 32
    assert weight.size_bytes == len(buffer) - 32
    del buffer  # the weight alone keeps the mapping alive
    wanted = format.decode(packed.view(-1, format.size)).view(3, columns)
    assert torch.equal(weight.dense(), wanted)


@every_format
def test_decodes_only_the_rows_asked_for(format: Format, random_rows: LayerKV) -> None:
    columns = 3 * format.block
    packed = random_rows(format, 6, columns)
    weight = Weight.from_bytes(packed.numpy().tobytes(), format, (6, columns))
    dense, ids = weight.dense(), torch.tensor([5, 0, 5])
    assert torch.equal(weight.rows(ids), dense[ids])
    out = torch.empty(2, columns)
    weight.decode(3, 5, out)
    assert torch.equal(out, dense[3:5])


@pytest.mark.sweep
@every_format
def test_the_reference_multiplies_packed_and_prepared_weights(
    format: Format, random: torch.Generator, even_rows: LayerKV
) -> None:
    tokens, outputs, columns = 3, 17, 3 * max(format.block, 24)
    rows = even_rows(format, outputs, columns).numpy()
    x = torch.randn(tokens, columns, generator=random)
    dense = torch.from_numpy(decoded(format, rows.reshape(-1, format.size))).double()
    dense = dense.view(outputs, columns)
    wanted = torch.tensor(
        [
            [math.fsum((x[t].double() * dense[n]).tolist()) for n in range(outputs)]
            for t in range(tokens)
        ],
        dtype=torch.float64,
    )
    packed = Weight.from_bytes(rows.tobytes(), format, (outputs, columns))
    with ops.only("reference"):
        for weight in (packed, ops.prepare(packed)):
            check_close(ops.linear(x, weight), wanted, 1e-10)  # only rounding differs


@pytest.mark.parametrize(
    ("name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_float_formats_have_their_own_type(name: str, dtype: torch.dtype) -> None:
    values = torch.tensor([[1.0, -2.5, 0.0], [0.5, 3.0, -0.125]]).to(dtype)
    data = values.view(torch.uint8).numpy().tobytes()
    weight = Weight.from_bytes(data, by_name(name), (2, 3))
    assert weight.data.dtype == dtype
    assert not weight.format.packed
    assert torch.equal(weight.dense(), values.float())


def test_a_vector_is_one_row_and_more_dimensions_are_more_rows() -> None:
    format = by_name("Q8_0")
    vector = Weight.from_bytes(bytes(68), format, (64,))
    assert vector.data.shape == (1, 68)
    assert vector.dense().shape == (1, 64)
    experts = Weight.from_bytes(bytes(4 * 3 * 34), format, (4, 3, 32))
    assert experts.shape == (4, 3, 32)
    assert experts.dense().shape == (12, 32)


@pytest.mark.parametrize(
    ("size", "shape", "words"),
    [
        (35, (2, 32), r"Weight: Q4_0 \[2, 32\] takes 36 bytes, got 35"),
        (0, (2, 32), "takes 36 bytes, got 0"),
        (36, (2, 33), "Q4_0 packs 32 weights to a block; 33"),
        (36, (), r"positive sizes, got \[\]"),
        (36, (0, 32), r"positive sizes, got \[0, 32\]"),
        (36, (-2, -32), r"positive sizes, got \[-2, -32\]"),
    ],
)
def test_refuses_bytes_that_are_not_of_its_shape(
    size: int, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Weight.from_bytes(bytes(size), by_name("Q4_0"), shape)


def test_refuses_a_row_that_is_not_there() -> None:
    weight = Weight.from_bytes(bytes(36), by_name("Q4_0"), (2, 32))
    with pytest.raises(IndexError):
        weight.rows(torch.tensor([2]))
