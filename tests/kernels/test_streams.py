"""Instructions of several residual streams, against definitions in f64, one token at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.backends import BACKENDS
from kernels.ops import (
    AddToStreams,
    Columns,
    Embed,
    GaussianTopK,
    Instruction,
    MatchMagnitude,
    MixStreams,
    ScaleChannels,
    Segment,
)
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

TOKENS, WIDTH, STREAMS = 7, 6, 3


def run(inputs: dict[str, Tensor], one: Instruction, out: str = "x") -> Tensor:
    """The buffer `out` after an instruction, whose inputs are columns of an embedding."""
    whole = torch.cat(list(inputs.values()), 1)
    table = Weight(whole, by_name("F32"), (whole.shape[0], whole.shape[1]))
    body: list[Instruction] = [Embed(table, "all")]
    start = 0
    for name, values in inputs.items():
        body.append(Columns("all", start, values.shape[1], name))
        start += values.shape[1]
    widths = {"all": start} | {name: values.shape[1] for name, values in inputs.items()}
    kv = KVLayout((), torch.float32)
    program = Program((*body, one), (0,), (), out, out, widths, kv)
    segment = Segment(list(range(len(whole))), 0, ())
    return Interpreter(program, BACKENDS["reference"].ops).hidden([segment])


def randoms(random: torch.Generator, *widths: int) -> list[Tensor]:
    return [torch.randn(TOKENS, width, generator=random) for width in widths]


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)


def test_streams_are_mixed_by_their_coefficients(random: torch.Generator) -> None:
    x, factors = randoms(random, STREAMS * WIDTH, STREAMS**2)
    wanted = x.double().view(TOKENS, STREAMS, WIDTH).clone()
    for t in range(TOKENS):
        for j in range(STREAMS):
            for k in range(STREAMS):
                stream = x[t, k * WIDTH : (k + 1) * WIDTH].double()
                wanted[t, j] += float(factors[t, j * STREAMS + k]) * stream
    close(run({"x": x, "c": factors}, MixStreams("x", "c")), wanted.view(TOKENS, -1))


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_buffer_is_added_to_streams(weighted: bool, first: int, random: torch.Generator) -> None:
    x, y, factors = randoms(random, STREAMS * WIDTH, WIDTH, STREAMS)
    wanted = x.double().clone()
    for t in range(TOKENS):
        for j in range(first, STREAMS):
            share = float(factors[t, j]) if weighted else 1.0
            wanted[t, j * WIDTH : (j + 1) * WIDTH] += share * y[t].double()
    one = AddToStreams("x", "y", "c" if weighted else "", first)
    close(run({"x": x, "y": y, "c": factors}, one), wanted)


def test_rows_get_the_magnitude_of_others(random: torch.Generator) -> None:
    x, like = randoms(random, WIDTH, WIDTH)
    x[2], like[3] = 0.0, 0.0
    x[4] *= 1e-4  # below the least magnitude
    found = run({"x": x, "y": like}, MatchMagnitude("x", "y", 1e-5))
    wanted = torch.zeros(TOKENS, WIDTH).double()
    for t in range(TOKENS):
        own, other = (sum(float(v) ** 2 for v in row[t]) / WIDTH for row in (x, like))
        wanted[t] = x[t].double() * math.sqrt(other) / math.sqrt(max(own, 1e-5))
    close(found, wanted)
    assert found[2].abs().max() == 0
    assert found[4].square().mean() < like[4].square().mean() / 100


def test_channels_are_scaled(random: torch.Generator) -> None:
    x, weight = randoms(random, WIDTH, WIDTH)
    found = run({"x": x}, ScaleChannels("x", weight[0]))
    close(found, x.double() * weight[0].double())


@pytest.mark.parametrize("deviations", [1.6448533535003662, 0.0, -0.5])
def test_only_the_highest_channels_are_kept(deviations: float, random: torch.Generator) -> None:
    x = torch.randn(TOKENS, 4000, generator=random) * 3 + 1
    found = run({"x": x}, GaussianTopK("x", deviations))
    wanted = torch.zeros(x.shape).double()
    for t in range(TOKENS):
        mean = float(x[t].double().mean())
        deviation = math.sqrt(float((x[t].double() - mean).square().sum()) / (x.shape[1] - 1))
        wanted[t] = (x[t].double() - mean - deviations * deviation).clamp(min=0)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    share = 0.5 * math.erfc(deviations / math.sqrt(2))
    assert abs(float((found > 0).float().mean()) - share) < 0.01


def test_no_buffer_that_is_read_is_changed(random: torch.Generator) -> None:
    x, y = randoms(random, STREAMS * WIDTH, WIDTH)
    before = x.clone(), y.clone()
    run({"x": x, "y": y}, AddToStreams("x", "y"))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
