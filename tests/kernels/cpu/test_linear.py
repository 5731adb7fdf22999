"""Native products: every format on every instruction set against the reference in double precision.

Outputs lie inside memory filled with NaN, so what a kernel leaves out or writes too much of shows.
"""

from __future__ import annotations

import itertools
import math
import random as plain_random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from blocks import PACKED
from kernels.cpu import library, ops, weights
from kernels.weights.formats import Format
from kernels.weights.weight import Weight

LayerKV = Callable[[Format, int, int], Tensor]
Shape = tuple[int, int, int]  # tokens, rows, columns

pytestmark = pytest.mark.usefixtures("instruction_set")
every_format = pytest.mark.parametrize("format", PACKED.values(), ids=lambda row: row.name)

TOKENS = (1, 2, 7, 13, 33)
ROWS = (1, 15, 16, 17, 64, 100, 300)
BLOCKS = (1, 2, 3, 9)
ODD_COLUMNS = (1, 2, 3, 9, 31, 33, 100, 257)  # of formats whose block is one weight
THREADS = (1, 2, 3)
FEW = 16  # tokens whose product reads packed weights without unpacking panels
MOST_ERROR = 5e-4  # normalized mean square error, for any format and shape
GUARD = 64  # floats before and after a result


@dataclass(frozen=True)
class Case:
    """Operands of one product, and what it is in double precision."""

    packed: Weight
    x: Tensor  # [T, D] f32
    wanted: Tensor  # [T, N] f64
    energy: float  # what the square of all results is expected to sum up to


def shapes(format: Format) -> Iterator[Shape]:
    columns = ODD_COLUMNS if format.block == 1 else [count * format.block for count in BLOCKS]
    return itertools.product(TOKENS, ROWS, columns)


def some_shapes(format: Format, random: torch.Generator, count: int = 8) -> list[Shape]:
    """One token and one row, and others that are new on every run."""
    every = list(shapes(format))  # the first is the smallest
    return [every[0], *plain_random.Random(random.initial_seed()).sample(every, count)]


def case(format: Format, shape: Shape, even_rows: LayerKV, random: torch.Generator) -> Case:
    tokens, rows, columns = shape
    data = even_rows(format, rows + 1, columns)[1:]  # the first holds a block of zeros
    weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))
    # Tokens and stretches of channels of unlike size: a scale that is taken from a neighbour shows.
    x = torch.randn(tokens, columns, generator=random)
    x *= torch.exp(torch.randn(tokens, 1, generator=random))
    x *= torch.exp(torch.randn(1, -(-columns // 32), generator=random)).repeat_interleave(32, 1)[
        :, :columns
    ]
    exact, dense = x.double(), weight.dense().double()
    energy = float((exact.square() @ dense.square().T).sum())
    return Case(weights.prepare(weight), x, exact @ dense.T, energy)


def product(packed: Weight, x: Tensor) -> Tensor:
    """x times the weight, [T, N] f32; nothing around it may have been written to."""
    tokens, rows = x.shape[0], packed.shape[0]
    around = torch.full((tokens * rows + 2 * GUARD,), math.nan)
    y = around[GUARD : GUARD + tokens * rows]
    ops.product(x, packed, y)
    assert around[:GUARD].isnan().all()
    assert around[-GUARD:].isnan().all()
    return y.view(tokens, rows)


def error_of(made: Case) -> float:
    """The normalized mean square error of a product, which must be that of no single wrong result.

    By what is expected, not by what came out: a single result may be zero by chance. A mean of few
    results may be several times what it is of many.
    """
    found = product(made.packed, made.x)
    assert found.isfinite().all()
    error = float((found.double() - made.wanted).square().sum()) / made.energy
    assert error <= MOST_ERROR * (1 + 8 / found.numel()), (tuple(made.x.shape), made.packed.shape)
    return error


def check(
    format: Format, shapes: Iterable[Shape], even_rows: LayerKV, random: torch.Generator
) -> None:
    """Every product by itself, and the mean of them all by the format's own tolerance."""
    made = [case(format, shape, even_rows, random) for shape in shapes]
    errors = [error_of(one) * one.wanted.numel() for one in made]
    assert sum(errors) <= format.tolerance * sum(one.wanted.numel() for one in made)


@every_format
def test_a_product_is_the_references(
    format: Format, even_rows: LayerKV, random: torch.Generator
) -> None:
    check(format, some_shapes(format, random), even_rows, random)


@pytest.mark.slow
@every_format
def test_a_product_is_the_references_at_every_shape(
    format: Format, even_rows: LayerKV, random: torch.Generator
) -> None:
    check(format, shapes(format), even_rows, random)


@every_format
def test_tokens_together_are_what_each_is_alone_on_any_number_of_threads(
    format: Format, even_rows: LayerKV, random: torch.Generator
) -> None:
    for shape in some_shapes(format, random, 3):
        made = case(format, shape, even_rows, random)
        results = []
        for threads in THREADS:
            library.set_threads(threads)
            results.append(product(made.packed, made.x))
            results.append(torch.cat([product(made.packed, row) for row in made.x.split(1)]))
        assert all(torch.equal(results[0], other) for other in results[1:]), shape


@every_format
def test_few_tokens_are_what_each_is_alone(
    format: Format, even_rows: LayerKV, random: torch.Generator
) -> None:
    """Kernels differ by the number of tokens: every number, on rows and columns new on every run."""
    chosen = plain_random.Random(random.initial_seed())
    odd = ODD_COLUMNS if format.block == 1 else [count * format.block for count in BLOCKS]
    for columns in (odd[0], chosen.choice(odd[1:])):
        rows = chosen.choice(ROWS)
        made = case(format, (FEW + 1, rows, columns), even_rows, random)
        alone = torch.cat([product(made.packed, row) for row in made.x.split(1)])
        for tokens in range(2, FEW + 2):
            found = product(made.packed, made.x[-tokens:])
            assert torch.equal(found, alone[-tokens:]), (tokens, rows, columns)


@every_format
def test_a_long_prompt_is_what_its_tokens_are_alone(
    format: Format, even_rows: LayerKV, random: torch.Generator
) -> None:
    made = case(format, (530, 36, 2 * max(format.block, 32)), even_rows, random)
    assert error_of(made) <= format.tolerance
    alone = torch.cat([product(made.packed, row) for row in made.x[::97].split(1)])
    assert torch.equal(product(made.packed, made.x)[::97], alone)


@every_format
def test_rows_of_a_table_are_the_decoders_bit_for_bit(
    format: Format, random_rows: LayerKV, random: torch.Generator
) -> None:
    rows, columns = 100, 3 * max(format.block, 11)
    data = random_rows(format, rows, columns)
    weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))
    ids = torch.randint(0, rows, (41,), generator=random)
    assert torch.equal(ops.embed(ids, weights.prepare(weight)), weight.rows(ids))


@every_format
def test_tiny_activations_are_multiplied_like_others(
    format: Format, even_rows: LayerKV, random: torch.Generator, instruction_set: str
) -> None:
    """By the reference, and with the bits of the plain kernels.

    Below 3.7e-37 the factor 127 / largest is infinite; below 1e-40 a scale has few bits left.
    """
    for tokens, exponent in itertools.product((1, 3, 33), (-119, -121, -124, -128)):
        made = case(format, (tokens, 17, 2 * max(format.block, 32)), even_rows, random)
        size = float(made.x.abs().max())
        x, raised = made.x / size * 2.0**exponent, size * 2.0**-exponent
        found = product(made.packed, x)
        error = float((found.double() * raised - made.wanted).square().sum()) / made.energy
        assert error <= MOST_ERROR * (1 + 8 / found.numel()), (tokens, exponent)
        library.use("scalar")
        assert torch.equal(product(made.packed, x), found), (tokens, exponent)
        library.use(instruction_set)


@every_format
def test_zeros_and_large_activations_stay_finite(format: Format, even_rows: LayerKV) -> None:
    columns = 2 * max(format.block, 32)
    weight = Weight.from_bytes(
        even_rows(format, 33, columns).numpy().data.cast("B"), format, (33, columns)
    )
    packed, x = weights.prepare(weight), torch.zeros(3, columns)
    assert torch.equal(product(packed, x), torch.zeros(3, 33))
    x[1], x[2, ::7] = 1e-42, 1e30
    wanted = x.double() @ weight.dense().double().T
    found = product(packed, x).double()
    assert found.isfinite().all()
    scale = (x.double().abs().amax(1, keepdim=True) + 1e-41) * weight.dense().abs().sum(1).double()
    assert ((found - wanted).abs() <= 0.02 * scale).all()
