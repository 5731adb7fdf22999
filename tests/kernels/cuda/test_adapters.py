"""LoRA terms of recorded decode steps against the reference, in Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.cuda.adapters import Terms
from kernels.ops import LoraDelta
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight


def delta(rank: int, columns: int, rows: int, random: torch.Generator) -> LoraDelta:
    def factor(*shape: int) -> Weight:
        return Weight(torch.randn(shape, generator=random), by_name("F32"), shape)

    return LoraDelta(factor(rank, columns), factor(rows, rank), torch.rand(rank, generator=random))


@pytest.mark.parametrize("ranks", [(4,), (3, 8), (16, 1, 5)])
def test_terms_are_added(ranks: tuple[int, ...], random: torch.Generator) -> None:
    tokens, columns = 3, 40
    sizes = (70, 9, 64)[: len(ranks)]
    deltas = [delta(rank, columns, rows, random) for rank, rows in zip(ranks, sizes, strict=True)]
    x = torch.randn(4, columns, generator=random)
    outs = [torch.full((4, rows), math.nan) for rows in sizes]
    wanted = []
    for one, out in zip(deltas, outs, strict=True):
        out[:tokens] = torch.randn(tokens, out.shape[1], generator=random)
        low = x[:tokens].double() @ one.down.data.double().T * one.scales
        wanted.append(out[:tokens] + low @ one.up.data.double().T)
    Terms(deltas, tokens, torch.device("cpu")).add(x, outs)
    for out, right in zip(outs, wanted, strict=True):
        assert torch.allclose(out[:tokens].double(), right, rtol=1e-5, atol=1e-5)
        assert out[tokens:].isnan().all()
