"""Recorded programs of any length, and ids that no table has."""

from __future__ import annotations

import pytest
import torch

from chosen_backend import ops
from kernels.cpu import library, program, weights
from kernels.ops import Embed, Linear, Scale, Segment
from kernels.programs.program import Program
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import no_attention

pytestmark = pytest.mark.skipif(not library.available(), reason=library.reason())

WIDTH, VOCABULARY, POSITIONS = 32, 40, 6
TOKENS = [3, 39, 0, 17]


def table(rows: int, random: torch.Generator) -> Weight:
    values = torch.randn(rows, WIDTH, generator=random)
    return weights.prepare(Weight(values, by_name("F32"), (rows, WIDTH)))


def recorded(
    scales: int, random: torch.Generator, positions: Weight | None = None
) -> tuple[program.Recorded, Weight, Weight]:
    """A program with so many multiplications, its table and its head."""
    words, head = table(VOCABULARY, random), table(VOCABULARY, random)
    body = [Embed(words, "x", positions=positions)]
    body += [Scale("x", (2.0, 0.5)[at % 2]) for at in range(scales)]  # type: ignore[list-item]
    widths = {"x": WIDTH, "logits": VOCABULARY}
    last = (Linear("x", (head,), ("logits",)),)
    whole = Program(tuple(body), (0,), last, "x", "logits", widths, no_attention())
    made = program.record(whole)
    return made, words, head


@pytest.mark.parametrize("scales", [0, 8_190, 8_192, 20_000])
def test_a_program_may_have_any_number_of_operations(scales: int, random: torch.Generator) -> None:
    made, words, head = recorded(scales, random)
    batch = [Segment(TOKENS, 0, ())]
    with ops.only("cpu"):
        x = ops.embed(torch.tensor(TOKENS), words)
        logits = ops.linear(x, head)
    assert torch.equal(made.hidden(batch), x)
    assert torch.equal(made.step(batch), logits)


@pytest.mark.parametrize("token", [-1, VOCABULARY, 1 << 40])
def test_an_id_that_the_table_does_not_have_is_an_error(
    token: int, random: torch.Generator
) -> None:
    made, words, _ = recorded(1, random)
    batch = [Segment([3, token, 5], 0, ())]
    with pytest.raises(IndexError, match="outside a table of embeddings"):
        made.hidden(batch)
    with pytest.raises(IndexError, match="outside a table of embeddings"):
        made.step(batch)
    with ops.only("cpu"):
        wanted = ops.embed(torch.tensor([3]), words) * 2
    assert torch.equal(made.hidden([Segment([3], 0, ())]), wanted)


def test_a_position_that_the_table_does_not_have_is_an_error(random: torch.Generator) -> None:
    made, _, _ = recorded(0, random, table(POSITIONS, random))
    made.hidden([Segment(TOKENS, POSITIONS - len(TOKENS), ())])
    with pytest.raises(IndexError, match="outside a table of embeddings"):
        made.hidden([Segment(TOKENS, POSITIONS - len(TOKENS) + 1, ())])
