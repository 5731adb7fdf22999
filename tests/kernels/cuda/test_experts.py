"""Triton kernels of mixtures of experts against the reference, in the interpreter."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gpu_products import MakeRows, weight_of
from gpu_results import check_close
from kernels import cuda
from kernels.backend import reference
from kernels.cuda import experts, launch, weights
from kernels.cuda.lowering import Lowering
from kernels.ops import Activation, Add, Experts, Linear, Segment
from kernels.ops.routing import Gating, Routing
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("few_programs")]

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


ROUTINGS = [
    Routing(3, Gating.SOFTMAX, normalized=False, scale=2.5),
    Routing(3, Gating.SOFTMAX, groups=4, chosen_groups=2),
    Routing(4, Gating.SIGMOID, groups=3, chosen_groups=2, scale=1.5),
    Routing(2, Gating.SIGMOID, normalized=False),
    Routing(3, Gating.SOFTMAX_OF_CHOSEN, scale=0.5),
    Routing(1, Gating.SIGMOID_OF_CHOSEN, normalized=False),
    Routing(2, Gating.SIGMOID, groups=12, chosen_groups=4),
]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_rare_routes_are_the_references(
    routing: Routing, biased: bool, random: torch.Generator
) -> None:
    count = 12
    scores = torch.randn(4, count, generator=random) * 3
    scores[1] = scores[1].round()
    if biased:
        routing = replace(routing, bias=torch.randn(count, generator=random))
    made = experts.new_routes(4, routing.chosen, HERE)
    made.shares.fill_(math.nan)
    experts.route(scores, 4, made, routing)
    wanted = reference.route(scores, routing.chosen, routing)
    found = torch.zeros_like(wanted).scatter_(1, made.chosen.long(), made.shares)
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["Q8_0", "F16"])
@pytest.mark.parametrize("kind", ["gpt-oss", "without ups", "weighs input"])
def test_rare_mixtures_are_the_references(
    name: str, kind: str, even_rows: MakeRows, random: torch.Generator
) -> None:
    """Biases and a limit; no gates beside a squared activation; shares that scale the input."""
    tokens, count, chosen, width, inner = 2, 5, 2, 96, 64

    def matrices(rows: int, columns: int) -> tuple[Weight, ...]:
        made = (weight_of(name, rows, columns, even_rows) for _ in range(count))
        return tuple(map(weights.STORE.prepare, made))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    is_gpt = kind == "gpt-oss"
    one = Experts(
        "x", "s", matrices(inner, width), () if kind == "without ups" else matrices(inner, width),
        matrices(width, inner), Routing(chosen, Gating.SIGMOID, normalized=False),
        Activation.GPT_OSS if is_gpt else Activation.RELU_SQUARED, "y",
        limit=2.0 if is_gpt else 0.0,
        gate_bias=normal(count, inner) if is_gpt else None,
        up_bias=normal(count, inner) if is_gpt else None,
        down_bias=normal(count, width) if is_gpt else None,
        gate_scale=normal(count) if is_gpt else None,
        up_scale=normal(count) if is_gpt else None,
        down_scale=normal(count),
        weighs_input=kind == "weighs input",
    )  # fmt: skip
    router = Weight(normal(count, width), by_name("F32"), (count, width))
    body = Linear("x", (router,), ("s",)), one, Add("x", "y", 0.5)
    widths = {"x": width, "s": count, "y": width, "": 1}
    program = Program(body, (0,), (), "x", "", widths, KVLayout([], torch.float16))
    lowered = Lowering(program, tokens, 1, HERE)
    x = normal(tokens, width) * 0.2
    lowered.buffers["x"][:tokens] = x
    for each in lowered.body:
        each()
    run = Interpreter(program, cuda.backend_on(HERE).ops)
    wanted = run.hidden([Segment([at], 0, []) for at in range(tokens)], given=x)
    check_close(lowered.buffers["x"][:tokens], wanted, MOST_ERROR)


# Every format is unpacked in test_products.py, by the same functions.
@pytest.mark.parametrize(
    "name", ["Q8_0", pytest.param("Q4_K", marks=pytest.mark.slow), "F16", "MXFP4"]
)
def test_a_mixture_is_the_references(
    name: str, even_rows: MakeRows, random: torch.Generator
) -> None:
    tokens, count, chosen = 3, 4, 2
    format = by_name(name)
    width = max(format.block, 64)

    def matrices() -> tuple[list[Weight], list[Tensor], float]:
        """As prepared, their values, and what makes a product with them the size of its input."""
        made = [weight_of(name, width, width, even_rows) for _ in range(count)]
        dense = [weight.dense().double() for weight in made]
        size = float(torch.stack(dense).square().mean().sqrt()) * width**0.5
        return list(map(weights.STORE.prepare, made)), dense, size

    # Products of about 1: of large ones SiLU leaves half, and few of their products with `up` count.
    (gates, gate, size), (ups, up, _), (downs, down, last_size) = matrices(), matrices(), matrices()
    x = torch.randn(4, width, generator=random) / size
    scale = 2.0 / last_size
    scores = torch.randn(tokens, count, generator=random)
    shares = reference.route(scores, chosen).double()
    wanted = torch.zeros(tokens, width, dtype=torch.float64)
    for number in range(count):
        some = x[:tokens].double()
        inner = reference.gated(some @ gate[number].T, some @ up[number].T, Activation.SILU)
        wanted += shares[:, number, None] * (inner @ down[number].T)
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
