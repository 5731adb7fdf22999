"""Triton kernels of mixtures of experts against the reference, in the interpreter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpu_products import MakeRows, weight_of
from gpu_results import check_close
from kernels import reference
from kernels.cuda import experts, launch, weights
from kernels.formats import by_name
from kernels.program import Activation
from kernels.weight import Weight

MOST_ERROR = 5e-4
HERE = torch.device("cpu")


@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (5, 2), (8, 8), (60, 4)])
def test_routes_are_the_references(count: int, chosen: int, random: torch.Generator) -> None:
    scores = torch.randn(3, count, generator=random) * 3
    scores[1] = scores[1].round()  # of equal scores the first is chosen
    made = experts.new_routes(3, chosen, HERE)
    made.shares.fill_(math.nan)
    experts.route(scores, 3, made)
    wanted = reference.route(scores, chosen)
    found = torch.zeros_like(wanted).scatter_(1, made.chosen.long(), made.shares)
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "F16", "MXFP4"])
def test_a_mixture_is_the_references(
    name: str, even_rows: MakeRows, random: torch.Generator
) -> None:
    tokens, count, chosen, scale = 3, 4, 2, 0.5
    format = by_name(name)
    width = max(format.block, 64)

    def matrices(rows: int, columns: int) -> tuple[list[Weight], list[Tensor]]:
        made, dense = [], []
        for _ in range(count):
            weight = weight_of(name, rows, columns, even_rows)
            made.append(weights.STORE.prepare(weight))
            dense.append(weight.dense().double() * columns**-0.5)
        return made, dense

    (gates, gate), (ups, up), (downs, down) = (
        matrices(width, width),
        matrices(width, width),
        matrices(width, width),
    )
    x = torch.randn(4, width, generator=random) * width**-0.5
    scores = torch.randn(tokens, count, generator=random)
    shares = reference.route(scores, chosen).double()
    root = width**0.5
    wanted = torch.zeros(tokens, width, dtype=torch.float64)
    for number in range(count):
        some = x[:tokens].double()
        inner = reference.gated(
            some @ gate[number].T * root, some @ up[number].T * root, Activation.SILU
        )
        wanted += shares[:, number, None] * (inner @ down[number].T * width**0.5)
    before = torch.randn(tokens, width, generator=random)
    wanted = before + scale * wanted

    routes = experts.new_routes(tokens, chosen, HERE)
    experts.route(scores, tokens, routes)
    floats = weights.reads_floats(format)
    quantized = None if floats else launch.quantized(x, tokens)
    inner = torch.full((launch.padded(tokens * chosen), width), math.nan)
    then = None if floats else launch.new_quantized(tokens * chosen, width, HERE)
    tables = [experts.table(some, HERE) for some in (gates, ups, downs)]
    experts.gated(
        x, quantized, routes, *tables[:2], Activation.SILU, tokens, inner if floats else None, then
    )
    norm, epsilon = torch.rand(width, generator=random) + 0.5, 1e-6
    deferred = launch.new_deferred(tokens, width, epsilon, HERE)
    residual = torch.full((4, width), math.nan)
    residual[:tokens] = before
    experts.added(inner, then, routes, tables[2], residual, tokens, scale, norm, deferred)
    assert residual[tokens:].isnan().all()
    check_close(residual[:tokens], wanted, MOST_ERROR)
    # What it prepared for the product after the norm is that norm.
    after = weight_of("Q8_0", 5, width, even_rows)
    out = torch.full((4, 5), math.nan)
    launch.linear(
        residual, deferred, [weights.operand(weights.STORE.prepare(after))], [out], tokens
    )
    normed = reference.rms_norm(residual[:tokens], norm, epsilon).double()
    check_close(out[:tokens], normed @ after.dense().double().T, MOST_ERROR)
