"""RMS norms with a bias, on every backend, against double precision."""

from __future__ import annotations

import pytest
import torch

from kernels.backends import BACKENDS
from kernels.ops import Embed, Linear, Norm, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import no_attention

D, V, EPSILON = 48, 9, 1e-5


def program(norm: Norm, table: Weight) -> Program:
    widths = {"x": D, "y": D, "logits": V}
    return Program(
        (Embed(table, "x"), norm), (1,), (Linear("y", (table,), ("logits",)),),
        "y", "logits", widths, no_attention(),
    )  # fmt: skip


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("name", [name for name in ("reference", "cpu") if name in BACKENDS])
def test_a_bias_is_added_last(name: str, centred: bool, random: torch.Generator) -> None:
    backend = BACKENDS[name]
    rows = torch.randn(V, D, generator=random) * 3 + 1
    scale, bias = (torch.randn(D, generator=random) for _ in "sb")
    norm = Norm("x", scale, EPSILON, "y", centred, bias)
    table = backend.prepare(Weight(rows, by_name("F32"), (V, D)))
    recorded = backend.record(program(norm, table))
    assert isinstance(recorded, Interpreter) == (name == "reference")
    found = recorded.hidden([Segment(list(range(V)), 0, ())])
    wide = rows.double()
    wide = wide - wide.mean(-1, keepdim=True) if centred else wide
    wanted = wide * (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * scale + bias
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
