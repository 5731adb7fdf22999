"""Recorded mixtures of experts: the bits of the interpreted program, in any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import blocks
from kernels.backends import BACKENDS
from kernels.cpu import library, program, weights
from kernels.ops import Activation, Embed, Experts, Linear, Norm, Segment
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.ops.routing import Gating, Routing
from kernels.programs.interpreter import Interpreter
from kernels.programs.not_lowerable import NotLowerable
from kernels.programs.program import Program
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import no_attention

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("instruction_set")]

WIDTH, INNER, VOCABULARY = 256, 512, 60
# Formats of the gates, the ups and the downs: Q1_0 rounds activations in other groups.
FORMATS = [
    ("Q4_0", "Q4_0", "Q4_0"),
    ("Q4_K", "Q4_K", "Q6_K"),
    ("Q8_0", "F16", "Q8_0"),
    ("Q1_0", "Q1_0", "Q1_0"),
    ("F32", "F32", "F32"),
    ("F16", "Q4_0", "F16"),
]


def matrix(name: str, rows: int, columns: int, random: torch.Generator) -> Weight:
    format = by_name(name)
    data = blocks.similar_scale_blocks(format, rows * columns // format.block, random)
    return weights.prepare(Weight(data.view(rows, -1), format, (rows, columns)))


def mixture(
    formats: tuple[str, str, str], experts: int, chosen: int, random: torch.Generator
) -> Program:
    gate, up, down = formats
    body = (
        Embed(matrix("F32", VOCABULARY, WIDTH, random), "x"),
        Norm("x", torch.rand(WIDTH, generator=random), 1e-5, "n"),
        Linear("n", (matrix("F32", experts, WIDTH, random),), ("scores",)),
        Experts(
            "n",
            "scores",
            tuple(matrix(gate, INNER, WIDTH, random) for _ in range(experts)),
            tuple(matrix(up, INNER, WIDTH, random) for _ in range(experts)),
            tuple(matrix(down, WIDTH, INNER, random) for _ in range(experts)),
            Routing(chosen),
            Activation.SILU,
            "x",
        ),
    )
    widths = {"x": WIDTH, "n": WIDTH, "scores": experts, "logits": VOCABULARY}
    return Program(body, (0,), (), "x", "logits", widths, no_attention())


def batch(tokens: Sequence[int]) -> list[Segment]:
    """One segment; nothing attends here."""
    return [Segment(tokens, 0, ())]


def check(made: Program, counts: Sequence[int], random: torch.Generator) -> None:
    recorded = program.record(made)
    for count in counts:
        tokens = torch.randint(VOCABULARY, (count,), generator=random).tolist()
        wanted = Interpreter(made, BACKENDS["cpu"].ops).hidden(batch(tokens))
        assert torch.isfinite(wanted).all()
        assert torch.equal(recorded.hidden(batch(tokens)), wanted)
        for at in (0, count - 1):
            assert torch.equal(recorded.hidden(batch(tokens[at : at + 1]))[0], wanted[at])


@pytest.mark.parametrize("formats", FORMATS, ids="-".join)
def test_a_mixture_equals_its_ops_bit_for_bit(
    formats: tuple[str, str, str], random: torch.Generator
) -> None:
    check(mixture(formats, 6, 2, random), (1, 2, 7, 40), random)


@pytest.mark.parametrize(("experts", "chosen"), [(1, 1), (3, 3), (9, 4), (128, 8)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_experts_and_threads(
    experts: int, chosen: int, threads: int, random: torch.Generator
) -> None:
    library.set_threads(threads)
    check(mixture(("Q4_0", "Q4_0", "Q4_0"), experts, chosen, random), (1, 33), random)


class Moving:
    """A streamer that moves the weights of experts, and gives them in groups of so many."""

    def __init__(self, one: Experts, size: int) -> None:
        self.read_bytes = 0
        self._matrices, self._size = (one.gates, one.ups, one.downs), size

    def read(
        self, layer: int, experts: Sequence[int], checkpoint: Callable[[], None]
    ) -> Iterator[Sequence[int]]:
        assert layer == 7
        for first in range(0, len(experts), self._size):
            checkpoint()
            group = experts[first : first + self._size]
            moved = [some[number] for some in self._matrices if some for number in group]
            for weight in moved:
                weight.data.set_(weight.data.clone())
            yield group
            for weight in moved:  # nothing else may read them
                kept = weight.data.clone()
                weight.data.fill_(0)
                weight.data.set_(kept)


@pytest.mark.parametrize("formats", FORMATS, ids="-".join)
@pytest.mark.parametrize("weighs_input", [False, True])
def test_groups_of_offloaded_experts_give_the_bits_of_all_at_once(
    formats: tuple[str, str, str], weighs_input: bool, random: torch.Generator
) -> None:
    made = mixture(formats, 6, 2, random)
    *before, last = made.body
    assert isinstance(last, Experts)
    last = replace(last, weighs_input=weighs_input)
    made = replace(made, body=(*before, last))
    wanted = program.record(made)
    for size in (1, 2, 6):
        offloaded = replace(last, streamer=Moving(last, size), offloaded_layer=7)
        grouped = replace(made, body=(*before, offloaded))
        recorded = program.record(grouped)
        for count in (1, 2, 40):
            tokens = torch.randint(VOCABULARY, (count,), generator=random).tolist()
            expected = wanted.hidden(batch(tokens))
            assert torch.equal(recorded.hidden(batch(tokens)), expected)
            interpreted = Interpreter(grouped, BACKENDS["cpu"].ops).hidden(batch(tokens))
            assert torch.equal(interpreted, expected)


ROUTINGS = [
    Routing(2, Gating.SIGMOID),
    Routing(2, Gating.SIGMOID_OF_CHOSEN, normalized=False),
    Routing(3, Gating.SOFTMAX_OF_CHOSEN, scale=2.5),
    Routing(2, Gating.SOFTMAX, normalized=False),
    Routing(3, Gating.SIGMOID, torch.linspace(-1, 1, 12), 4, 2, scale=1.5),
    Routing(2, Gating.SOFTMAX, torch.linspace(1, -1, 12), 12, 5),
]


@pytest.mark.parametrize("routing", ROUTINGS)
def test_any_routing(routing: Routing, random: torch.Generator) -> None:
    made = mixture(("Q4_0", "Q4_0", "Q4_0"), 12, routing.chosen, random)
    *before, last = made.body
    assert isinstance(last, Experts)
    body = (*before, replace(last, routing=routing))
    check(replace(made, body=body), (1, 33), random)
    scores = torch.randn(200, 12, generator=random)
    found, wanted = (BACKENDS[name].ops.route(scores, routing) for name in ("cpu", "reference"))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)


PARTS: list[tuple[str, dict[str, tuple[int, ...]]]] = [
    ("biased", {"gate_bias": (6, INNER), "up_bias": (6, INNER), "down_bias": (6, WIDTH)}),
    ("scaled", {"gate_scale": (6,), "up_scale": (6,), "down_scale": (6,)}),
    ("both", {"gate_scale": (6,), "gate_bias": (6, INNER), "down_bias": (6, WIDTH)}),
    ("plain", {}),
]


@pytest.mark.parametrize("format", ["Q4_0", "F32"])
@pytest.mark.parametrize(("name", "shapes"), PARTS)
@pytest.mark.parametrize("weighs_input", [False, True])
@pytest.mark.parametrize("ungated", [False, True])
def test_parts_of_experts(
    format: str,
    name: str,
    shapes: dict[str, tuple[int, ...]],
    weighs_input: bool,
    ungated: bool,
    random: torch.Generator,
) -> None:
    made = mixture((format,) * 3, 6, 2, random)
    *before, last = made.body
    assert isinstance(last, Experts)
    parts: dict[str, Any] = {
        part: torch.randn(shape, generator=random)
        for part, shape in shapes.items()
        if not (ungated and part.startswith("up"))
    }
    if ungated:
        parts["ups"] = ()
    activation = Activation.RELU_SQUARED if ungated else Activation.GPT_OSS
    options = {"activation": activation, "limit": 0.0 if ungated else 2.0}
    options |= {"weighs_input": weighs_input, "out": "y"}
    body = (*before, replace(last, **parts, **options))
    widths = {**made.widths, "y": WIDTH}
    check(replace(made, body=body, hidden="y", widths=widths), (1, 25), random)


@pytest.mark.parametrize("format", ["Q4_0", "F32", "Q1_0"])
@pytest.mark.parametrize("ungated", [False, True])
def test_rotated_experts(format: str, ungated: bool, random: torch.Generator) -> None:
    signs = torch.randn(INNER, generator=random).sign()
    outer, inner = HadamardRotation(128, signs[:WIDTH], (2, 4)), HadamardRotation(512, signs)
    formats = format, format, format
    *before, last = mixture(formats, 6, 2, random).body
    assert isinstance(last, Experts)
    one = replace(last, gate_rotation=outer, down_rotation=inner)
    one = replace(one, ups=()) if ungated else replace(one, up_rotation=outer)
    made = replace(mixture(formats, 6, 2, random), body=(*before, one))
    check(made, (1, 2, 33), random)
    for other in (
        replace(one, ups=last.ups, up_rotation=inner),
        replace(one, down_rotation=replace(inner, heads=(2, 2))),
        replace(one, weighs_input=True),
    ):
        with pytest.raises(NotLowerable):
            program.record(replace(made, body=(*before, other)))


def test_more_tokens_of_one_expert_than_one_product_takes(random: torch.Generator) -> None:
    check(mixture(("Q8_0", "Q8_0", "Q8_0"), 2, 1, random), (400,), random)


def test_gates_and_ups_of_other_groups_are_interpreted(random: torch.Generator) -> None:
    with pytest.raises(NotLowerable):
        program.record(mixture(("Q4_0", "Q1_0", "Q4_0"), 2, 1, random))
