"""Triton products against the reference in double precision, in the interpreter.

Outputs are filled with NaN before, and lie between rows of NaN that nobody may write to.
"""

from __future__ import annotations

import math
import random as plain_random

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import gpu_products
from gpu_products import MakeMatrix, MakeRows, energy_of, matrices
from gpu_results import guarded
from kernels.backend import reference
from kernels.cuda import launch, weights
from kernels.gpu.layout import FORMATS
from kernels.ops import COMMON_ACTIVATIONS, Activation
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

pytestmark = pytest.mark.sweep

MOST_ERROR = 5e-4  # normalized mean square error

every_format = pytest.mark.parametrize("name", FORMATS)
SOME_FORMATS = ("Q1_0", "Q2_0", "Q2_K", "Q3_K", "Q4_0", "Q4_K", "Q6_K", "Q8_0", "F16", "F8_E4M3")


@pytest.fixture
def matrix(even_rows: MakeRows) -> MakeMatrix:
    return matrices(even_rows, lambda weight: weights.operand(weights.STORE.prepare(weight)))


def activations(tokens: int, columns: int, random: torch.Generator) -> Tensor:
    """Rows [padded tokens, columns], NaN after the tokens."""
    x = torch.full((launch.padded(tokens), columns), math.nan)
    x[:tokens] = gpu_products.activations(tokens, columns, random)
    return x


def check_close(found: Tensor, wanted: Tensor, energy: float | None = None) -> None:
    gpu_products.check_close(found, wanted, MOST_ERROR * (1 + 8 / found.numel()), energy)


def columns_of(name: str, blocks: int) -> int:
    return blocks * max(by_name(name).block, 32)


@every_format
def test_a_product_is_the_references(
    name: str, matrix: MakeMatrix, random: torch.Generator
) -> None:
    chosen = plain_random.Random(random.initial_seed())
    for tokens in (1, chosen.choice((2, 3, 5))):
        rows, columns = chosen.choice((1, 7, 9, 19)), columns_of(name, chosen.choice((1, 3)))
        made = matrix(name, rows, columns)
        x = activations(tokens, columns, random)
        quantized = launch.quantized(x, tokens)
        out, check = guarded(launch.padded(tokens), rows)
        launch.linear(x, quantized, [made.operand], [out], tokens)
        check()
        energy = energy_of(x[:tokens], made.dense)
        check_close(out[:tokens], x[:tokens].double() @ made.dense.T, energy)


def test_several_products_of_one_x(matrix: MakeMatrix, random: torch.Generator) -> None:
    tokens, columns = 2, 512
    made = [matrix(name, rows, columns) for name, rows in (("Q4_K", 20), ("Q6_K", 9), ("F16", 3))]
    x = activations(tokens, columns, random)
    outs = [guarded(launch.padded(tokens), one.operand.rows) for one in made]
    launch.linear(
        x, launch.quantized(x, tokens), [one.operand for one in made], [y for y, _ in outs], tokens
    )
    for one, (out, check) in zip(made, outs, strict=True):
        check()
        check_close(
            out[:tokens], x[:tokens].double() @ one.dense.T, energy_of(x[:tokens], one.dense)
        )


@pytest.mark.parametrize("name", SOME_FORMATS)
def test_a_product_is_added_and_prepares_the_next_norm(
    name: str, matrix: MakeMatrix, random: torch.Generator
) -> None:
    tokens, rows, columns, epsilon = 3, 96, columns_of(name, 1), 1e-5
    made, after = matrix(name, rows, columns), matrix("Q8_0", 5, rows)
    x = activations(tokens, columns, random)
    scale = float(torch.rand((), generator=random)) + 0.5
    norm = torch.randn(rows, generator=random)
    residual, check = guarded(launch.padded(tokens), rows)
    before = torch.randn(tokens, rows, generator=random)
    residual[:tokens] = before
    then = launch.new_deferred(tokens, rows, epsilon, torch.device("cpu"))
    launch.linear_added(
        x, launch.quantized(x, tokens), made.operand, residual, tokens, scale, norm, then
    )
    check()
    wanted = before.double() + scale * (x[:tokens].double() @ made.dense.T)
    energy = energy_of(x[:tokens], made.dense) * scale**2
    check_close(residual[:tokens], wanted, energy + float(before.double().square().sum()))
    out, check = guarded(launch.padded(tokens), 5)
    launch.linear(residual, then, [after.operand], [out], tokens)
    check()
    normed = reference.rms_norm(residual[:tokens], norm, epsilon)
    check_close(out[:tokens], normed.double() @ after.dense.T, energy_of(normed, after.dense))


@pytest.mark.parametrize(
    ("activation", "limit"),
    [(one, 0.0) for one in sorted(COMMON_ACTIVATIONS, key=lambda one: one.value)]
    + [(Activation.GPT_OSS, 0.7)],
)
@pytest.mark.parametrize("name", ["Q1_0", "Q4_K", "BF16"])
def test_gate_and_up_are_multiplied(
    name: str,
    activation: Activation,
    limit: float,
    matrix: MakeMatrix,
    random: torch.Generator,
) -> None:
    tokens, rows, columns = 2, 64, columns_of(name, 1)
    gate, up = matrix(name, rows, columns), matrix(name, rows, columns)
    after = matrix("Q8_0", 5, rows)
    x = activations(tokens, columns, random) / columns**0.5
    quantized = launch.quantized(x, tokens)
    out, check = guarded(launch.padded(tokens), rows)
    operands = x, quantized, gate.operand, up.operand, activation, tokens
    launch.linear_gated(*operands, out, limit=limit)
    check()
    some = x[:tokens].double()
    products = some @ gate.dense.T, some @ up.dense.T
    wanted = reference.gated(*products, activation, limit)
    energy = energy_of(x[:tokens], gate.dense) * float(products[1].square().mean()) + float(
        wanted.square().sum()
    )
    check_close(out[:tokens], wanted, energy)
    then = launch.new_quantized(tokens, rows, torch.device("cpu"))
    launch.linear_gated(*operands, then=then, limit=limit)
    result, check = guarded(launch.padded(tokens), 5)
    launch.linear(out, then, [after.operand], [result], tokens)
    check()
    check_close(
        result[:tokens], out[:tokens].double() @ after.dense.T, energy_of(out[:tokens], after.dense)
    )


@pytest.mark.parametrize("exponent", [-100, -113, -120, -124, -130])
def test_tiny_activations_are_multiplied_like_others(
    exponent: int, matrix: MakeMatrix, random: torch.Generator
) -> None:
    made = matrix("Q8_0", 9, 256)
    x = activations(3, 256, random) * 2.0**exponent
    out, check = guarded(launch.padded(3), 9)
    launch.linear(x, launch.quantized(x, 3), [made.operand], [out], 3)
    check()
    wanted, raised = x[:3].double() @ made.dense.T, 2.0**-exponent
    energy = energy_of(x[:3], made.dense) * raised**2
    check_close(out[:3].double() * raised, wanted * raised, energy)


def test_zeros_and_large_activations_stay_finite(matrix: MakeMatrix) -> None:
    made = matrix("Q4_K", 9, 256)
    x = torch.zeros(4, 256)
    x[1], x[2, ::7] = 1e-42, 1e30
    out, check = guarded(4, 9)
    launch.linear(x, launch.quantized(x, 3), [made.operand], [out], 3)
    check()
    assert torch.equal(out[0], torch.zeros(9))
    assert out[:3].isfinite().all()
    wanted = functional.linear(x.double(), made.dense)
    most = (x.double().abs().amax(1, keepdim=True) + 1e-37) * made.dense.abs().sum(1)
    assert ((out - wanted).abs() <= 0.02 * most)[:3].all()


@every_format
def test_rows_of_a_table_are_the_decoders_bit_for_bit(
    name: str, random_rows: MakeRows, random: torch.Generator
) -> None:
    format = by_name(name)
    rows, columns = 9, 3 * max(format.block, 32)
    data = random_rows(format, rows, columns)
    weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))
    ids = torch.randint(0, rows, (5,), generator=random)
    out, check = guarded(5, columns)
    launch.embed(ids, weights.operand(weights.STORE.prepare(weight)), out)
    check()
    assert torch.equal(out, weight.rows(ids))


@every_format
def test_products_of_more_tokens_on_decoded_weights(
    name: str, matrix: MakeMatrix, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, rows, columns = 18, 35, columns_of(name, 1)
    made = matrix(name, rows, columns)
    x = activations(tokens, columns, random)
    wanted = x[:tokens].double() @ made.dense.T
    energy = energy_of(x[:tokens], made.dense)
    out, check = guarded(tokens, rows)
    launch.linear_tiles(x, made.operand, out, tokens)
    check()
    check_close(out, wanted, energy)
    for decoded in (rows * columns, 16 * columns):  # at once, and in pieces
        monkeypatch.setattr(launch, "_DECODED", decoded)
        check_close(launch.linear_decoded(x, made.operand, tokens), wanted, energy)


@pytest.mark.parametrize("limit", [0.0, 4.0])
@pytest.mark.parametrize("activation", Activation)
def test_activations_are_the_references(
    activation: Activation, limit: float, random: torch.Generator
) -> None:
    gate, up = torch.randn(2, 3, 700, generator=random) * 5
    for factor in (up, None):
        out, check = guarded(3, 700)
        launch.gated(gate, factor, activation, out, limit)
        check()
        right = None if factor is None else up.double()
        wanted = reference.gated(gate.double(), right, activation, limit)
        gpu_products.check_close(out, wanted, 1e-12)


def test_a_softplus_of_small_values_is_accurate() -> None:
    gate = torch.linspace(-40, 25, 700)
    out = torch.empty_like(gate)
    launch.gated(gate, None, Activation.SOFTPLUS, out)
    wanted = torch.log1p(gate.double().exp())
    assert torch.allclose(out.double(), wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("columns", [1, 31, 96, 130])
def test_norms_are_the_references_and_quantized(columns: int, random: torch.Generator) -> None:
    x = torch.randn(3, columns, generator=random) * 3 + 1
    weight, bias = torch.randn(2, columns, generator=random)
    for centred, added in ((False, None), (True, None), (True, bias)):
        out, check = guarded(3, columns)
        then = launch.new_quantized(3, columns, torch.device("cpu"))
        launch.normed(x, weight, added, 1e-5, centred, 3, out, then)
        check()
        operands = x.double(), weight.double()
        if centred:
            wanted = reference.layer_norm(*operands, None if added is None else bias.double(), 1e-5)
        else:
            wanted = reference.rms_norm(*operands, 1e-5)
        check_close(out, wanted)
        check_close(dequantized(then, columns)[:3], wanted)


def dequantized(made: launch.Quantized, columns: int) -> Tensor:
    """The values of quantized activations [padded tokens, columns]; checks their sums."""
    words = made.words
    codes = words[:, :8].transpose(1, 2).contiguous().view(torch.int8)  # [T, units, 32]
    scales, sums = words[:, 8].view(torch.float32), words[:, 9:].view(torch.float32)
    values = codes.float() * scales[..., None]
    halves = values.view(*values.shape[:2], 2, 16).sum(-1).transpose(1, 2)
    assert torch.allclose(halves, sums, atol=1e-4, rtol=1e-4)
    return values.flatten(1)[:, :columns]
