"""Products and embeddings of Metal shaders against the reference in double precision.

Outputs are filled with NaN before, and lie between rows of NaN that nobody may write to.
"""

from __future__ import annotations

import math
import random as plain_random

import pytest
import torch
from torch import Tensor

import gpu_products
from gpu_products import MakeMatrix, MakeRows, activations, energy_of, matrices
from gpu_results import guarded
from kernels.backend import reference
from kernels.gpu.layout import FORMATS
from kernels.gpu.weights import held_bytes
from kernels.metal import products, weights
from kernels.ops import COMMON_ACTIVATIONS, Activation
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

MOST_ERROR = 1e-11  # normalized mean square error: only the order of additions differs

every_format = pytest.mark.parametrize("name", FORMATS)


@pytest.fixture
def matrix(even_rows: MakeRows) -> MakeMatrix:
    return matrices(even_rows, lambda weight: weights.operand(weights.STORE.prepare(weight)))


def check_close(found: Tensor, wanted: Tensor, energy: float | None = None) -> None:
    gpu_products.check_close(found, wanted, MOST_ERROR, energy)


def columns_of(name: str, blocks: int) -> int:
    """Columns of so many blocks; an odd number for floats."""
    block = by_name(name).block
    return blocks * max(block, 32) + (block == 1) * blocks


@every_format
def test_a_product_is_the_references(
    name: str, matrix: MakeMatrix, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = plain_random.Random(random.initial_seed() + len(name))
    for blocks, split in ((1, 2), (3, 1)):
        monkeypatch.setattr(products, "_split", lambda columns, split=split: split)
        rows, columns = chosen.choice((1, 7, 9, 19)), columns_of(name, blocks)
        made = matrix(name, rows, columns)
        x = activations(3, columns, random)
        out, check = guarded(3, rows)
        products.linear(x, [made.operand], [out], 3)
        check()
        check_close(out, x.double() @ made.dense.T, energy_of(x, made.dense))


@pytest.mark.parametrize("tokens", [1, 2, 4])
def test_other_numbers_of_tokens(
    tokens: int, matrix: MakeMatrix, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_MANY_ROWS", 10)  # 4 rows of a SIMD group
    for name, columns in (("Q6_K", 1280), ("F16", 516)):
        made = matrix(name, 17, columns)
        x = activations(tokens + 1, columns, random)
        out, check = guarded(tokens, 17)
        products.linear(x, [made.operand], [out], tokens)
        check()
        check_close(out, x[:tokens].double() @ made.dense.T, energy_of(x, made.dense))


def test_several_products_of_one_x(
    matrix: MakeMatrix, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, columns = 2, 512
    made = [matrix(name, rows, columns) for name, rows in (("Q4_K", 21), ("Q6_K", 9), ("F16", 3))]
    x = activations(tokens, columns, random)
    for count in (2, 3):  # 30 rows: 2 of a SIMD group; 33 rows: 4
        monkeypatch.setattr(products, "_MANY_ROWS", 33)
        some = made[:count]
        outs = [guarded(tokens, one.operand.rows) for one in some]
        products.linear(x, [one.operand for one in some], [y for y, _ in outs], tokens)
        for one, (out, check) in zip(some, outs, strict=True):
            check()
            check_close(out, x.double() @ one.dense.T, energy_of(x, one.dense))


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K", "BF16"])
def test_a_product_is_added(name: str, matrix: MakeMatrix, random: torch.Generator) -> None:
    tokens, rows, columns = 2, 13, 512
    made = matrix(name, rows, columns)
    x, residual = activations(tokens, columns, random), torch.randn(tokens, rows, generator=random)
    out, check = guarded(tokens, rows)
    out.copy_(residual)
    products.linear_added(x, made.operand, out, tokens, 0.5)
    check()
    wanted = residual.double() + 0.5 * (x.double() @ made.dense.T)
    check_close(out, wanted, energy_of(x, made.dense))


@pytest.mark.parametrize("activation", sorted(COMMON_ACTIVATIONS, key=lambda one: one.value))
def test_a_gated_product(
    activation: Activation,
    matrix: MakeMatrix,
    random: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, rows, columns = 2, 15, 256
    monkeypatch.setattr(products, "_MANY_ROWS", rows)
    gate, up = matrix("Q4_K", rows, columns), matrix("Q5_0", rows, columns)
    x = activations(tokens, columns, random) / 64
    out, check = guarded(tokens, rows)
    products.linear_gated(x, gate.operand, up.operand, activation, tokens, out)
    check()
    both = [x.double() @ one.dense.T for one in (gate, up)]
    check_close(out, reference.gated(both[0], both[1], activation))


@every_format
def test_rows_of_a_table_are_the_decoders_bit_for_bit(
    name: str, random_rows: MakeRows, random: torch.Generator
) -> None:
    format = by_name(name)
    rows, columns = 9, columns_of(name, 3)
    data = random_rows(format, rows, columns)
    weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))
    table = weights.operand(weights.STORE.prepare(weight))
    ids = torch.randint(0, rows, (5,), generator=random)
    out, check = guarded(5, columns)
    products.embed(ids, table, out)
    check()
    assert torch.equal(out, weight.rows(ids))
    some, check = guarded(4, columns)
    products.decode_rows(table, 3, some)
    check()
    assert torch.equal(some, weight.dense()[3:7])
    products.embed(ids, table, out, 1.5)
    assert torch.equal(out, weight.rows(ids) * 1.5)


def test_lanes_read_halves_of_units_where_more_of_them_work() -> None:
    splits = {columns: products._split(columns) for columns in (32, 576, 1024, 1152, 1536, 4096)}
    assert splits == {32: 2, 576: 1, 1024: 1, 1152: 2, 1536: 2, 4096: 1}


@pytest.mark.parametrize("name", ["Q3_K", "F16"])
def test_products_of_more_tokens(
    name: str, matrix: MakeMatrix, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns = 35, 256
    monkeypatch.setattr(products, "_DECODED", 10 * columns)
    made = matrix(name, rows, columns)
    for tokens in (products.MOST + 5, products.MANY):
        x = activations(tokens, columns, random)
        out, check = guarded(tokens, rows)
        products.linear_many(x, made.operand, out, tokens)
        check()
        check_close(out, x.double() @ made.dense.T, energy_of(x, made.dense))


@every_format
def test_rows_are_filled_in_pieces(name: str, random_rows: MakeRows) -> None:
    format = by_name(name)
    rows, columns = 7, columns_of(name, 1)
    data = random_rows(format, rows, columns)
    weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))
    whole = weights.STORE.prepare(weight)
    assert whole.size_bytes == held_bytes(format, (rows, columns))
    memory = torch.zeros(whole.size_bytes + 100, dtype=torch.uint8)
    made = weights.STORE.empty(format, (rows, columns), memory)
    for first, end in ((4, 7), (0, 4)):
        weights.fill(made, first, end, data[first:end])
    found, wanted = torch.full((2, rows, columns), math.nan)
    products.decode_rows(weights.operand(made), 0, found)
    products.decode_rows(weights.operand(whole), 0, wanted)
    assert torch.equal(found, wanted)
