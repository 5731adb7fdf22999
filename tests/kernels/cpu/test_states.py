"""Native short convolutions and recurrences, on every instruction set.

Outputs lie in memory filled with NaN, so what a kernel leaves out shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.backend import reference
from kernels.cpu import library, ops
from kernels.cpu.schema import MAX_TAPS
from kernels.ops import Recurrence

pytestmark = pytest.mark.usefixtures("instruction_set")

MOST_ERROR = 1e-11  # normalized squared error against f64


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("count", "width", "taps"), [(1, 1, 1), (5, 3, 2), (2, 17, 4), (40, 130, 3), (3, 64, MAX_TAPS)]
)
def test_short_conv_has_the_bits_of_the_reference(
    count: int, width: int, taps: int, biased: bool, random: torch.Generator
) -> None:
    x, weight = (torch.randn(shape, generator=random) for shape in ((count, width), (width, taps)))
    state = torch.randn(taps - 1, width, generator=random)
    bias = torch.randn(width, generator=random) if biased else None
    y, after = ops.short_conv(x, weight, bias, state)
    wanted, last = reference.short_conv(x, weight, bias, state)
    assert torch.equal(y, wanted)
    assert torch.equal(after, last)


def test_more_taps_than_the_kernel_takes_run_on_the_reference(random: torch.Generator) -> None:
    x, weight = torch.randn(2, 5, generator=random), torch.randn(5, MAX_TAPS + 1, generator=random)
    state = torch.randn(MAX_TAPS, 5, generator=random)
    found = ops.short_conv(x, weight, None, state)
    assert all(map(torch.equal, found, reference.short_conv(x, weight, None, state)))


def operands(
    sizes: tuple[int, int, int, int, int], random: torch.Generator, by_channel: bool = False
) -> list[Tensor]:
    """q, k, v, decay, strength, state of T tokens, H and K heads, C and V channels."""
    tokens, heads, key_heads, keys, values = sizes
    decays = heads * keys if by_channel else heads
    key = tokens, key_heads, keys
    shapes = key, key, (tokens, heads, values), (tokens, decays), (tokens, heads)
    shapes = (*shapes, (heads, keys, values))
    return [torch.randn(shape, generator=random) for shape in shapes]


def options(heads: int, decays: int, random: torch.Generator, **more: Any) -> Recurrence:
    rate, bias = -torch.rand(heads, generator=random), torch.randn(decays, generator=random)
    return Recurrence(*"qkvdso", 0, rate, bias, 0.3, **{"epsilon": 1e-6, **more})


def exact(one: Recurrence) -> Recurrence:
    skip = None if one.skip is None else one.skip.double()
    return replace(one, rate=one.rate.double(), decay_bias=one.decay_bias.double(), skip=skip)


def assert_near(found: Tensor, wanted: Tensor) -> None:
    assert found.isfinite().all()
    size = wanted.square().sum() + wanted.numel()  # operands are near 1, sums may cancel out
    assert (found - wanted).square().sum() <= MOST_ERROR * size


SIZES = [
    (1, 1, 1, 1, 1),
    (1, 4, 2, 128, 128),
    (3, 4, 2, 6, 10),
    (2, 6, 2, 17, 77),
    (70, 2, 1, 24, 40),
    (33, 2, 2, 64, 100),
]


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_recurrence_is_near_its_definition_in_f64(
    sizes: tuple[int, int, int, int, int],
    corrected: bool,
    by_channel: bool,
    random: torch.Generator,
) -> None:
    inputs = operands(sizes, random, by_channel)
    one = options(sizes[1], inputs[3].shape[1], random, corrected=corrected, tiled=by_channel)
    found = ops.recurrence(*inputs, one)
    wanted = reference.recurrence(*(x.double() for x in inputs), exact(one))
    for got, right in zip(found, wanted, strict=True):
        assert_near(got, right)


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_decays_with_a_floor_are_near_their_definition(
    sizes: tuple[int, int, int, int, int], by_channel: bool, random: torch.Generator
) -> None:
    inputs = operands(sizes, random, by_channel)
    one = options(sizes[1], inputs[3].shape[1], random, corrected=True, floor=-5.0)
    one = replace(one, rate=-one.rate)  # above 0 where there is a floor
    found = ops.recurrence(*inputs, one)
    wanted = reference.recurrence(*(x.double() for x in inputs), exact(one))
    for got, right in zip(found, wanted, strict=True):
        assert_near(got, right)


@pytest.mark.parametrize("sizes", SIZES)
def test_a_state_space_model_steps_by_its_decay_and_skips(
    sizes: tuple[int, int, int, int, int], random: torch.Generator
) -> None:
    q, k, v, decay, _, state = operands(sizes, random)
    skip = torch.randn(sizes[1], generator=random)
    one = options(sizes[1], sizes[1], random, corrected=False, epsilon=-1.0, skip=skip)
    found = ops.recurrence(q, k, v, decay, None, state, one)
    inputs = [x.double() for x in (q, k, v, decay)]
    wanted = reference.recurrence(*inputs, None, state.double(), exact(one))
    for got, right in zip(found, wanted, strict=True):
        assert_near(got, right)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_bits_depend_on_neither_the_cut_nor_threads(
    threads: int, random: torch.Generator
) -> None:
    inputs = operands((90, 3, 3, 20, 150), random)
    one = options(3, 3, random)
    library.set_threads(1)
    y, after = ops.recurrence(*inputs, one)
    library.set_threads(threads)
    state = inputs.pop()
    for start, end in ((0, 1), (1, 2), (2, 40), (40, 90)):
        some = [x[start:end] for x in inputs]
        found, state = ops.recurrence(*some, state, one)
        assert torch.equal(found, y[start:end])
    assert torch.equal(state, after)


def test_nan_stays_in_its_head(random: torch.Generator) -> None:
    inputs = operands((4, 2, 2, 16, 32), random)
    inputs[2][1, 0, 5] = torch.nan
    y, state = ops.recurrence(*inputs, options(2, 2, random))
    assert y[1:, 0, 5].isnan().all()
    assert state[0, :, 5].isnan().all()
    assert y[:, 1].isfinite().all()
    assert state[1].isfinite().all()
