"""Layer norms and activations without a gate, on every backend, against double precision."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from kernels import ops
from kernels.ops import Activation

pytestmark = pytest.mark.usefixtures("backend")

SHAPES = [(1, 1), (1, 2), (3, 15), (2, 16), (5, 17), (7, 64), (3, 100), (2, 3, 48), (300, 257)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("middle", [0.0, 50.0])
def test_layer_norm(
    shape: tuple[int, ...], biased: bool, middle: float, random: torch.Generator
) -> None:
    x = torch.randn(shape, generator=random) * 3 + middle
    weight, bias = (torch.randn(shape[-1], generator=random) for _ in "wb")
    bias = bias if biased else None
    wanted = functional.layer_norm(
        x.double(),
        shape[-1:],
        weight.double(),
        None if bias is None else bias.double(),
        1e-5,
    )
    found = ops.layer_norm(x, weight, bias, 1e-5)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=2e-4 if middle else 2e-6)


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
@pytest.mark.parametrize("count", [1, 16, 17, 1000])
def test_activation_alone(activation: Activation, count: int, random: torch.Generator) -> None:
    x = torch.randn(2, count, generator=random) * 4
    found = ops.gated(x, None, activation)
    assert torch.equal(found, ops.gated(x, torch.ones_like(x), activation))


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
