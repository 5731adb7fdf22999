"""Codes of keys and values: what numbers they stand for, and attention over them on any backend."""

from __future__ import annotations

import pytest
import torch

from kernels import ops
from kernels.coded import Coded

CAPACITY = 90


def coded(random: torch.Generator, positions: int, width: int, heads: int = 2) -> Coded:
    """A view of a larger buffer, as a cache holds it: what is not seen is no number."""
    codes = torch.randint(-127, 128, (heads, CAPACITY, width), generator=random).to(torch.int8)
    scales = torch.rand(heads, CAPACITY, -(-width // 32), generator=random).to(torch.float16)
    scales[:, positions:] = torch.nan
    return Coded(*(part[:, :positions].transpose(0, 1) for part in (codes, scales / 50)))


@pytest.mark.parametrize("width", [1, 32, 50, 64, 128])
def test_numbers_are_codes_times_the_scale_of_their_block(
    width: int, random: torch.Generator
) -> None:
    rows = coded(random, 7, width)
    dense = rows.dense()
    assert dense.shape == rows.shape == (7, 2, width)
    for channel in range(width):
        scale = rows.scales[..., channel // 32].float()
        assert torch.equal(dense[..., channel], rows.codes[..., channel] * scale)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("tokens", [1, 3, 20])
@pytest.mark.parametrize("width", [33, 64, 128])
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (9, 4.0)])
def test_attention_over_codes_is_that_over_their_numbers(
    tokens: int, width: int, window: int, cap: float, random: torch.Generator
) -> None:
    q = torch.randn(tokens, 6, width, generator=random)
    keys, values = coded(random, 75, width), coded(random, 75, width)
    place = 75 - tokens, width**-0.5, window, cap
    with ops.only("reference"):
        wanted = ops.attention(q, keys.dense(), values.dense(), *place)
    got = ops.attention(q, keys, values, *place)
    assert (got - wanted).square().sum() <= 1e-6 * wanted.square().sum()


def test_codes_and_numbers_do_not_mix(random: torch.Generator) -> None:
    q, rows = torch.randn(1, 2, 32, generator=random), coded(random, 5, 32)
    with pytest.raises(ValueError, match="alike"):
        ops.attention(q, rows, rows.dense(), 4, 1.0)
    with pytest.raises(ValueError, match="coded"):
        ops.attention(q, rows.codes, rows.codes, 4, 1.0)
