"""Recorded products of one input with matrices of several formats: the bits of the single ops.

Some formats round activations in groups of 16, some in groups of 32, some not at all; a recorded
pass keeps one rounded copy at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import blocks
from chosen_backend import ops
from kernels import cpu
from kernels.cpu import library, program, weights
from kernels.ops import Activation, Add, Embed, Gate, Instruction, Linear, Norm, Segment
from kernels.programs.program import Program, Recorded
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import no_attention

pytestmark = pytest.mark.usefixtures("instruction_set")

WIDTH, VOCABULARY, TOKENS = 256, 40, [3, 0, 39, 17, 3, 8, 21]
TRIPLES = list(itertools.permutations(("Q1_0", "Q4_0", "TQ2_0", "F32"), 3))
PAIRS = [*itertools.permutations(("Q1_0", "Q4_0", "Q2_0", "F16"), 2), ("Q1_0", "Q1_0")]


def matrix(name: str, rows: int, random: torch.Generator) -> Weight:
    format = by_name(name)
    data = blocks.similar_scale_blocks(format, rows * WIDTH // format.block, random)
    return weights.prepare(Weight(data.view(rows, -1), format, (rows, WIDTH)))


def batch(tokens: Sequence[int]) -> list[Segment]:
    """One segment; nothing attends here."""
    return [Segment(tokens, 0, ())]


def passes(body: Sequence[Instruction], table: Weight, names: Sequence[str]) -> Tensor:
    """Hidden states of all tokens in one recorded pass, then of each alone: [2 * T, D]."""
    widths = dict.fromkeys(names, WIDTH)
    embed = Embed(table, "x")
    widths |= {"logits": VOCABULARY}
    whole = Program((embed, *body), (0,), (), "x", "logits", widths, no_attention())
    recorded = program.record(whole)
    assert recorded
    alone = [recorded.hidden(batch([token])) for token in TOKENS]
    return torch.cat([recorded.hidden(batch(TOKENS)), *alone])


@pytest.mark.parametrize("formats", TRIPLES, ids="-".join)
def test_products_of_several_formats(formats: tuple[str, ...], random: torch.Generator) -> None:
    table = matrix("F32", VOCABULARY, random)
    made = [matrix(name, WIDTH, random) for name in formats]
    scale = torch.rand(WIDTH, generator=random)
    outs = tuple(f"out {at}" for at in range(len(made)))
    body = [Norm("x", scale, 1e-5, "n"), Linear("n", tuple(made), outs)]
    body += [Add("x", out) for out in outs]
    found = passes(body, table, ("x", "n", *outs))
    with ops.only("cpu"):
        x = ops.embed(torch.tensor(TOKENS), table)
        n = ops.rms_norm(x, scale, 1e-5)
        for weight in made:
            x = x + ops.linear(n, weight)
    assert torch.equal(found, torch.cat([x, x]))


@pytest.mark.parametrize("formats", PAIRS, ids="-".join)
def test_gates_of_several_formats(formats: tuple[str, str], random: torch.Generator) -> None:
    table = matrix("F32", VOCABULARY, random)
    gate, up = (matrix(name, WIDTH, random) for name in formats)
    # Of x itself, which is not normed first, and then of what the gate has made.
    body = [
        Linear("x", (gate, up), ("g", "u")),
        Gate("g", "u", Activation.SILU, "g"),
        Linear("g", (up,), ("d",)),
        Add("x", "d"),
    ]
    found = passes(body, table, ("x", "g", "u", "d"))
    with ops.only("cpu"):
        x = ops.embed(torch.tensor(TOKENS), table)
        gated = ops.gated(ops.linear(x, gate), ops.linear(x, up), Activation.SILU)
        x = x + ops.linear(gated, up)
    assert torch.equal(found, torch.cat([x, x]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("formats", [("Q1_0", "Q1_0"), ("Q1_0", "Q4_0"), ("Q4_0", "Q4_0")])
def test_long_prompts_are_shared_in_pieces(
    formats: tuple[str, str], threads: int, random: torch.Generator
) -> None:
    """By rows, and by tokens too where kernels do best with so many: bits are those of the whole."""
    rows, tokens = 2112, [(7 * at) % VOCABULARY for at in range(131)]
    table = matrix("F32", VOCABULARY, random)
    gate, up = (matrix(name, rows, random) for name in formats)
    gated = Gate("g", "u", Activation.SILU, "g")
    body = Embed(table, "x"), Linear("x", (gate, up), ("g", "u")), gated
    widths = {"x": WIDTH, "g": rows, "u": rows, "logits": VOCABULARY}
    recorded = program.record(Program(body, (0,), (), "g", "logits", widths, no_attention()))
    assert recorded
    before = library.threads()
    try:
        library.set_threads(threads)
        found = recorded.hidden(batch(tokens))
    finally:
        library.set_threads(before)
    with ops.only("cpu"):
        x = ops.embed(torch.tensor(tokens), table)
        expected = ops.gated(ops.linear(x, gate), ops.linear(x, up), Activation.SILU)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("formats", "out"),
    [
        (("Q1_0",), "d"),
        (("Q4_0", "Q8_0"), "d"),
        (("F16",), "d"),  # it reads the floats, which all threads have made
        (("Q4_0", "F16"), "d"),
        (("Q4_0",), "x"),  # it writes where others may still read what they norm
        (("Q4_0",), "n"),  # or write it
    ],
)
def test_no_thread_of_a_step_is_ahead_of_what_others_read(
    formats: tuple[str, ...], out: str, random: torch.Generator
) -> None:
    """A norm and products of one token, many times on several threads: always the same bits."""
    table = matrix("F32", VOCABULARY, random)
    made = tuple(matrix(name, WIDTH, random) for name in formats)
    outs = (out, *(f"out {at}" for at in range(1, len(made))))
    norm = Norm("x", torch.rand(WIDTH, generator=random), 1e-5, "n")
    widths = dict.fromkeys(("x", "n", "d", *outs), WIDTH) | {"logits": VOCABULARY}
    body = Embed(table, "x"), norm, Linear("n", made, outs)
    for result in (outs[0], outs[-1]):
        recorded = program.record(Program(body, (0,), (), result, "logits", widths, no_attention()))
        assert recorded
        same_on_any_threads(recorded)


def test_no_thread_adds_to_what_others_still_norm(random: torch.Generator) -> None:
    table, weight = matrix("F32", VOCABULARY, random), matrix("Q4_0", WIDTH, random)
    norm = Norm("x", torch.rand(WIDTH, generator=random), 1e-5, "n")
    body = Embed(table, "x"), norm, Linear("n", (weight,), ("d",)), Add("x", "d")
    widths = dict.fromkeys(("x", "n", "d"), WIDTH) | {"logits": VOCABULARY}
    recorded = program.record(Program(body, (0,), (), "x", "logits", widths, no_attention()))
    assert recorded
    same_on_any_threads(recorded)


def same_on_any_threads(recorded: Recorded) -> None:
    """Steps give the bits of one thread on two and three, and find no number of the step before."""
    before = library.threads()
    try:
        library.set_threads(1)
        alone = {token: recorded.hidden(batch([token])) for token in (3, 8)}
        for threads in (2, 3):
            library.set_threads(threads)
            for token in 200 * [*alone]:
                assert torch.equal(recorded.hidden(batch([token])), alone[token])
    finally:
        library.set_threads(before)


def test_groups_are_what_the_kernels_say() -> None:
    native = library.native()
    groups = {name: native.nk_activation_group(by_name(name).id) for name in cpu_formats()}
    wide = {name for name, group in groups.items() if group == 32}
    assert wide == {
        *("Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "PQ2_0", "PTQ1_0", "TQ2_0_G128"),
    }
    exact = {name for name, group in groups.items() if group == 0}
    assert exact == {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}
    assert set(groups.values()) == {0, 16, 32}


def cpu_formats() -> list[str]:
    return sorted({name for op, name in cpu.KERNELS if op == "linear" and name})
