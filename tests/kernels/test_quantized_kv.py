"""Codes of keys and values: what numbers they stand for, and attention over them on any backend."""

from __future__ import annotations

import pytest
import torch

from chosen_backend import ops
from kernels.states.quantized_kv import QuantizedKV, hadamard
from paging import stored
from rotation import rotation

CAPACITY = 90


def coded(random: torch.Generator, positions: int, width: int, heads: int = 2) -> QuantizedKV:
    """A view of a larger buffer, as a cache holds it: what is not seen is no number."""
    codes = torch.randint(-127, 128, (heads, CAPACITY, width), generator=random).to(torch.int8)
    scales = torch.rand(heads, CAPACITY, -(-width // 32), generator=random).to(torch.float16)
    scales[:, positions:] = torch.nan
    return QuantizedKV(*(part[:, :positions].transpose(0, 1) for part in (codes, scales / 50)))


WIDTHS = (1, 2, 7, 16, 32, 48, 50, 64, 80, 96, 128, 192, 256, 512)


@pytest.mark.parametrize("width", WIDTHS)
def test_rotation_is_by_the_matrix_of_its_definition(width: int, random: torch.Generator) -> None:
    matrix, x = rotation(width), torch.randn(3, 2, width, generator=random)
    torch.testing.assert_close(hadamard(x).double(), x.double() @ matrix, rtol=0, atol=2e-6)
    assert torch.equal(matrix, matrix.mT)
    torch.testing.assert_close(matrix @ matrix, torch.eye(width, dtype=torch.float64))


@pytest.mark.parametrize("width", WIDTHS)
def test_rotation_spreads_what_stands_out(width: int) -> None:
    x = torch.zeros(1, width)
    x[0, width // 3] = 1000.0
    span = min(width & -width, 256)
    rotated = hadamard(x).abs()
    assert int((rotated > 0).sum()) == span
    torch.testing.assert_close(rotated.max(), torch.tensor(1000.0 / span**0.5))


def test_rotation_of_nothing_is_nothing() -> None:
    assert hadamard(torch.empty(0, 2, 64)).shape == (0, 2, 64)


@pytest.mark.parametrize("width", [1, 32, 50, 64, 128])
def test_rows_are_codes_times_the_scale_of_their_block_rotated_back(
    width: int, random: torch.Generator
) -> None:
    rows = coded(random, 7, width)
    dense, codes = rows.dense(), rows.codes.double()
    assert dense.shape == rows.shape == (7, 2, width)
    for channel in range(width):
        codes[..., channel] *= rows.scales[..., channel // 32].double()
    torch.testing.assert_close(dense.double(), codes @ rotation(width), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("tokens", [1, 3, 20])
@pytest.mark.parametrize("width", [33, 64, 128])
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (9, 4.0)])
def test_attention_over_codes_is_that_over_their_numbers(
    tokens: int, width: int, window: int, cap: float, random: torch.Generator
) -> None:
    q = torch.randn(tokens, 6, width, generator=random)
    keys, values = (torch.randn(75, 2, width, generator=random) for _ in "kv")
    codes = stored(keys, values, torch.int8)
    numbers = [rows.dense() for rows in codes.rows(0, 75) if isinstance(rows, QuantizedKV)]
    assert len(numbers) == 2
    place = 75 - tokens, width**-0.5, window, cap
    with ops.only("reference"):
        wanted = ops.attention(q, stored(*numbers, torch.float32), *place)
    got = ops.attention(q, codes, *place)
    assert (got - wanted).square().sum() <= 1e-6 * wanted.square().sum()
