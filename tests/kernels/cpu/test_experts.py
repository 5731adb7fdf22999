"""Recorded mixtures of experts: the bits of the interpreted program, in any batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import blocks
from kernels.backends import BACKENDS
from kernels.cpu import library, program, weights
from kernels.formats import by_name
from kernels.interpreter import Interpreter
from kernels.program import Activation, Embed, Experts, Linear, Norm, Program, Routing, Segment
from kernels.weight import Weight
from paging import no_attention

pytestmark = pytest.mark.usefixtures("instruction_set")

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
    assert recorded is not None
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


def test_more_tokens_of_one_expert_than_one_product_takes(random: torch.Generator) -> None:
    check(mixture(("Q8_0", "Q8_0", "Q8_0"), 2, 1, random), (400,), random)


def test_gates_and_ups_of_other_groups_are_interpreted(random: torch.Generator) -> None:
    assert program.record(mixture(("Q4_0", "Q1_0", "Q4_0"), 2, 1, random)) is None
