"""Layer norms and activations without a gate, on every backend, against double precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chosen_backend import ops
from kernels.ops import Activation

pytestmark = pytest.mark.usefixtures("backend")

SHAPES = [(1, 1), (1, 2), (3, 15), (2, 16), (5, 17), (7, 64), (3, 100), (2, 3, 48), (300, 257)]
EPSILON = 1e-5


def check_layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Compare with double precision: eight roundings of the largest number in the row at most.

    A mean in single precision is off by up to half a unit in the last place of the row's numbers.
    Divided by a small standard deviation that is much: two numbers that nearly agree keep few
    digits, in any order of additions. So the bound grows with their ratio, row by row.
    """
    wide = x.double()
    factor = (wide.var(-1, correction=0, keepdim=True) + EPSILON).rsqrt()
    scaled = (wide - wide.mean(-1, keepdim=True)) * factor * weight.double()
    added = torch.zeros(()) if bias is None else bias
    found = ops.layer_norm(x, weight, bias, EPSILON)
    assert found.dtype == torch.float32
    rounding = wide.abs().amax(-1, keepdim=True) * 2.0**-24
    allowed = 8 * rounding * factor * weight.abs() + 1e-6 * (scaled.abs() + added.abs())
    error = (found.double() - scaled - added).abs()
    worst = int((error - allowed).argmax())
    assert (error <= allowed).all(), f"{error.view(-1)[worst]} > {allowed.view(-1)[worst]}"


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(shape: tuple[int, ...], random: torch.Generator) -> None:
    for middle in (0.0, 50.0):
        x = torch.randn(shape, generator=random) * 3 + middle
        weight, bias = (torch.randn(shape[-1], generator=random) for _ in "wb")
        check_layer_norm(x, weight, bias)
        check_layer_norm(x, weight, None)


@pytest.mark.parametrize("apart", [1e-2, 1e-3, 4e-6, 0.0])
def test_numbers_that_nearly_agree_keep_the_digits_single_precision_has(apart: float) -> None:
    check_layer_norm(torch.tensor([[50.0, 50.0 + apart]]), torch.tensor([1.7, -0.3]), None)


def test_one_row_has_the_same_bits_alone(random: torch.Generator) -> None:
    x = torch.randn(9, 200, generator=random)
    weight, bias = torch.randn(200, generator=random), torch.randn(200, generator=random)
    together = ops.layer_norm(x, weight, bias, 1e-6)
    alone = torch.cat([ops.layer_norm(row[None], weight, bias, 1e-6) for row in x])
    assert torch.equal(together, alone)


def test_no_number_is_not_hidden(random: torch.Generator) -> None:
    x = torch.randn(2, 70, generator=random)
    x[1, 69] = torch.nan
    found = ops.layer_norm(x, torch.ones(70), None, 1e-5)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()


@pytest.mark.parametrize("activation", list(Activation))
def test_activation_alone(activation: Activation, random: torch.Generator) -> None:
    neutral = 0.0 if activation is Activation.GPT_OSS else 1.0  # its factor is up + 1
    for count in (1, 16, 17, 1000):
        x = torch.randn(2, count, generator=random) * 4
        found = ops.gated(x, None, activation)
        assert torch.equal(found, ops.gated(x, torch.full_like(x, neutral), activation)), count


@pytest.mark.parametrize(
    ("weight", "bias", "said"),
    [
        (torch.ones(4), None, "a weight [4]"),
        (torch.ones(5), torch.ones(1, 5), "a bias [1, 5]"),
        (torch.ones(5, dtype=torch.float64), None, "weight float64"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    weight: torch.Tensor, bias: torch.Tensor | None, said: str
) -> None:
    with pytest.raises(ValueError, match=r"^layer_norm: ") as refused:
        ops.layer_norm(torch.ones(2, 5), weight, bias, 1e-5)
    assert said in str(refused.value)
