"""Definitions of the instructions of newer models, against independent formulas in f64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernels.backends import BACKENDS
from kernels.ops import (
    Activation,
    Columns,
    Experts,
    Gate,
    HeadGate,
    HeadLinear,
    HeadNorm,
    Instruction,
    Join,
    Linear,
    PositionScale,
    Scale,
    Segment,
    Xielu,
)
from kernels.ops.routing import Gating, Routing
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import no_attention, stored, tables

OPS = BACKENDS["reference"].ops
EXACT: dict[Activation, Callable[[float], float]] = {
    Activation.SILU: lambda x: x / (1 + math.exp(-x)),
    Activation.GELU: lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    Activation.RELU: lambda x: max(x, 0.0),
    Activation.RELU_SQUARED: lambda x: max(x, 0.0) ** 2,
    Activation.SIGMOID: lambda x: 1 / (1 + math.exp(-x)),
    Activation.SOFTPLUS: lambda x: math.log1p(math.exp(x)),
    Activation.GPT_OSS: lambda x: x / (1 + math.exp(-1.702 * x)),
}


def values(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=random)


def matrix(data: Tensor) -> Weight:
    return Weight(data, by_name("F32"), tuple(data.shape))


def run(
    buffers: dict[str, Tensor], out: str, *instructions: Instruction, width: int | None = None
) -> Tensor:
    """The buffer `out`, of so many columns, after instructions over given buffers."""
    rows = torch.cat(list(buffers.values()), 1)
    widths = {name: one.shape[1] for name, one in buffers.items()} | {"given": rows.shape[1]}
    split: list[Instruction] = []
    for name, one in buffers.items():
        start = sum(part.width for part in split if isinstance(part, Columns))
        split.append(Columns("given", start, one.shape[1], name))
    widths.setdefault(out, width or 0)
    head = (*split, *instructions)
    program = Program((), (), head, "given", out, widths, no_attention())
    return Interpreter(program, OPS).logits(rows)


@pytest.mark.parametrize("activation", EXACT)
def test_activations(activation: Activation, random: torch.Generator) -> None:
    gate, up = values(random, 3, 5) * 4, values(random, 3, 5)
    act = EXACT[activation]
    more = 1.0 if activation is Activation.GPT_OSS else 0.0
    for limit in (0.0, 1.5):
        most = limit or math.inf
        wanted = [
            act(min(g, most)) * (min(max(u, -most), most) + more)
            for g, u in zip(gate.flatten().tolist(), up.flatten().tolist(), strict=True)
        ]
        found = run({"g": gate, "u": up}, "g", Gate("g", "u", activation, "g", limit))
        torch.testing.assert_close(found, torch.tensor(wanted).view(3, 5), rtol=1e-5, atol=1e-6)
    alone = run({"g": gate}, "g", Gate("g", "", activation, "g"))
    wanted = [act(g) for g in gate.flatten().tolist()]
    torch.testing.assert_close(alone, torch.tensor(wanted).view(3, 5), rtol=1e-5, atol=1e-6)


def test_xielu(random: torch.Generator) -> None:
    x = values(random, 4, 6)
    found = run({"x": x}, "x", Xielu("x", 0.8, 0.7, 0.5, -1e-6))
    wanted = [
        0.8 * v * v + 0.5 * v if v > 0 else 0.7 * (math.expm1(min(v, -1e-6)) - v) + 0.5 * v
        for v in x.flatten().tolist()
    ]
    torch.testing.assert_close(found, torch.tensor(wanted).view(4, 6), rtol=1e-5, atol=1e-6)


def test_a_gate_of_each_head(random: torch.Generator) -> None:
    x, gate = values(random, 3, 8), values(random, 3, 4)
    found = run({"x": x, "g": gate}, "x", HeadGate("x", "g", Activation.SIGMOID))
    wanted = x * torch.special.expit(gate.double()).repeat_interleave(2, 1)
    torch.testing.assert_close(found, wanted.float())


@pytest.mark.parametrize("centred", [False, True])
def test_a_norm_of_each_head(centred: bool, random: torch.Generator) -> None:
    x, weight = values(random, 3, 12), values(random, 2, 6)
    found = run({"x": x}, "x", HeadNorm("x", weight, 1e-5, centred))
    heads = x.double().view(3, 2, 6)
    heads = heads - heads.mean(-1, True) if centred else heads
    wanted = heads / (heads.square().mean(-1, True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(found, wanted.flatten(1).float(), rtol=1e-5, atol=1e-6)


def test_products_of_each_head_read_columns_of_theirs(random: torch.Generator) -> None:
    x, weights = values(random, 4, 3 * 7), values(random, 3, 5, 4)
    one = HeadLinear("x", tuple(map(matrix, weights)), "y", start=2)
    found = run({"x": x}, "y", one, width=15)
    wanted = torch.einsum("thc,hnc->thn", x.view(4, 3, 7)[..., 2:6].double(), weights.double())
    torch.testing.assert_close(found, wanted.flatten(1).float(), rtol=1e-5, atol=1e-5)


def test_heads_are_joined_one_by_one() -> None:
    x, y = torch.arange(6.0).view(1, 6), torch.arange(10.0, 14.0).view(1, 4)
    found = run({"x": x, "y": y}, "z", Join(("x", "y"), "z", heads=2), width=10)
    assert found.tolist() == [[0, 1, 2, 10, 11, 3, 4, 5, 12, 13]]


def test_products_are_scaled_before_their_bias(random: torch.Generator) -> None:
    x, weight, bias = values(random, 2, 4), values(random, 3, 4), values(random, 3)
    one = Linear("x", (matrix(weight),), ("y",), (), (bias,), (0.3,))
    found = run({"x": x}, "y", one, Scale("y", 2.0), width=3)
    torch.testing.assert_close(found, 2 * (x @ weight.T * 0.3 + bias))


def test_queries_are_scaled_by_their_position() -> None:
    tokens, layout = 6, no_attention()
    body = (PositionScale("x", 0.1, 4.0, 1.0),)
    program = Program(body, (0,), (), "x", "", {"x": 2}, layout)
    batch = [Segment([0] * tokens, 5, tables(layout, tokens))]
    found = Interpreter(program, OPS).hidden(batch, given=torch.ones(tokens, 2))
    wanted = [1 + 0.1 * math.log(1 + (at + 1) // 4) for at in range(5, 5 + tokens)]
    torch.testing.assert_close(found, torch.tensor(wanted)[:, None].expand(-1, 2))


def test_sinks_take_a_share_of_each_head(random: torch.Generator) -> None:
    T, H, K, C, S = 4, 6, 2, 5, 9
    q, k, v = values(random, T, H, C), values(random, S, K, C), values(random, S, K, C)
    sinks = values(random, H) * 2
    kv = stored(k, v, torch.float32)
    for window in (0, 3):
        found = OPS.attention(q, kv, S - T, 0.4, window, 0.0, sinks).view(T, H, C)
        for t in range(T):
            for head in range(H):
                end = S - T + t + 1
                seen = slice(max(end - window, 0) if window else 0, end)
                scores = k[seen, head // 3].double() @ q[t, head].double() * 0.4
                weights = torch.cat((scores, sinks[head : head + 1].double())).softmax(0)[:-1]
                wanted = weights @ v[seen, head // 3].double()
                torch.testing.assert_close(found[t, head].double(), wanted, rtol=1e-5, atol=1e-6)


# --- routing and experts ------------------------------------------------------------------------


def shares_of(scores: list[float], routing: Routing) -> list[float]:
    """The shares of one token, by sorting."""
    experts = range(len(scores))
    chosen_only = (Gating.SOFTMAX_OF_CHOSEN, Gating.SIGMOID_OF_CHOSEN)
    total = sum(math.exp(score) for score in scores)
    value = {
        Gating.SOFTMAX: lambda s: math.exp(s) / total,
        Gating.SIGMOID: lambda s: 1 / (1 + math.exp(-s)),
        **dict.fromkeys(chosen_only, lambda s: s),
    }[routing.gating]
    values = [value(score) for score in scores]
    bias = [0.0] * len(scores) if routing.bias is None else routing.bias.tolist()
    ranked = [values[e] + bias[e] for e in experts]
    size = len(scores) // routing.groups
    by_group = [sorted(ranked[g * size : g * size + size])[-2:] for g in range(routing.groups)]
    best = sorted(range(routing.groups), key=lambda g: -sum(by_group[g]))[: routing.chosen_groups]
    able = [e for e in experts if e // size in best]
    chosen = sorted(able, key=lambda e: -ranked[e])[: routing.chosen]
    found = {e: values[e] for e in chosen}
    if routing.gating is Gating.SOFTMAX_OF_CHOSEN:
        whole = sum(math.exp(one) for one in found.values())
        found = {e: math.exp(one) / whole for e, one in found.items()}
    elif routing.gating is Gating.SIGMOID_OF_CHOSEN:
        found = {e: 1 / (1 + math.exp(-one)) for e, one in found.items()}
    whole = sum(found.values()) if routing.normalized else 1.0
    return [found.get(e, 0.0) / whole * routing.scale for e in experts]


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("groups", [(1, 1), (4, 2)])
@pytest.mark.parametrize("gating", Gating)
def test_routing(
    gating: Gating, groups: tuple[int, int], normalized: bool, random: torch.Generator
) -> None:
    scores = values(random, 20, 12).double().float()
    for bias in (None, values(random, 12)):
        routing = Routing(3, gating, bias, *groups, normalized, 2.5)
        found = OPS.route(scores, routing)
        wanted = [shares_of(row, routing) for row in scores.tolist()]
        torch.testing.assert_close(found, torch.tensor(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "routing",
    [Routing(2, groups=5, scale=2.0), Routing(3, groups=6, chosen_groups=1, scale=2.0)],
    ids=["groups of unequal size", "more experts than the groups have"],
)
def test_an_impossible_routing_is_refused(routing: Routing) -> None:
    with pytest.raises(ValueError, match="route: "):
        OPS.route(torch.zeros(1, 12), routing)


@pytest.mark.parametrize("weighs_input", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_experts_with_biases_and_scales(
    gated: bool, weighs_input: bool, random: torch.Generator
) -> None:
    E, D, F, T = 5, 4, 6, 7
    x, scores = values(random, T, D), values(random, T, E)
    gate, up, down = values(random, E, F, D), values(random, E, F, D), values(random, E, D, F)
    biases = [values(random, E, F), values(random, E, F), values(random, E, D)]
    scales = [values(random, E) for _ in range(3)]
    routing = Routing(2, Gating.SIGMOID, normalized=False)
    one = Experts(
        "x",
        "s",
        tuple(map(matrix, gate)),
        tuple(map(matrix, up)) if gated else (),
        tuple(map(matrix, down)),
        routing,
        Activation.SILU,
        "y",
        2.0,
        *(biases[0], biases[1] if gated else None, biases[2]),
        *(scales[0], scales[1] if gated else None, scales[2]),
        weighs_input,
    )
    found = run({"x": x, "s": scores}, "y", one, width=D)
    wanted = torch.zeros(T, D, dtype=torch.float64)
    for t in range(T):
        for e, share in enumerate(shares_of(scores[t].tolist(), routing)):
            if not share:
                continue
            row = x[t].double() * (share if weighs_input else 1.0)
            g = (gate[e].double() @ row * scales[0][e] + biases[0][e]).clamp(max=2.0)
            inner = g * torch.special.expit(g)
            if gated:
                inner = inner * (up[e].double() @ row * scales[1][e] + biases[1][e]).clamp(-2, 2)
            y = down[e].double() @ inner * scales[2][e] + biases[2][e]
            wanted[t] += y * (1.0 if weighs_input else share)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
