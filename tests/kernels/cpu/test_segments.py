"""Recorded passes over segments: the bits of a token do not depend on its batch.

Two layers of different windows, with rotation, head norms and learned positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import paging
from kernels.backends import BACKENDS
from kernels.cpu import library, program
from kernels.ops import Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import PageTable
from two_layers import TYPES, model, some_tokens

pytestmark = pytest.mark.usefixtures("instruction_set")


def recorded_of(made: Program) -> program.Recorded:
    return program.record(made)


def alone(made: Program, tokens: Sequence[int]) -> Tensor:
    """Hidden states of a sequence, in one pass of its own."""
    return recorded_of(made).hidden([Segment(tokens, 0, paging.tables(made.kv, len(tokens)))])


@TYPES
@pytest.mark.parametrize("count", [1, 40, 300])
def test_a_pass_equals_its_ops_bit_for_bit(
    dtype: torch.dtype, count: int, random: torch.Generator
) -> None:
    made, tokens = model(dtype, random), some_tokens(count, random)
    whole = Segment(tokens, 0, paging.tables(made.kv, count))
    wanted = Interpreter(made, BACKENDS["cpu"].ops).hidden([whole])
    assert wanted.isfinite().all()
    assert torch.equal(alone(made, tokens), wanted)


@TYPES
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pieces_give_the_bits_of_the_whole(
    dtype: torch.dtype, threads: int, random: torch.Generator
) -> None:
    library.set_threads(threads)
    made, tokens = model(dtype, random), some_tokens(620, random)
    wanted, tables, recorded = alone(made, tokens), paging.tables(made.kv, 620), recorded_of(made)
    ends = [1, 2, 3, 7, 250, 255, 256, 257, 273, *range(590, 600), 620]
    found = [
        recorded.hidden([Segment(tokens[start:end], start, tables)])
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    assert torch.equal(torch.cat(found), wanted)


@TYPES
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_segments_do_not_change_each_other(
    dtype: torch.dtype, threads: int, random: torch.Generator
) -> None:
    """Sequences of several lengths: each grows by some tokens in every pass of all."""
    library.set_threads(threads)
    made = model(dtype, random)
    sequences = [some_tokens(count, random) for count in (700, 90, 300, 20)]
    recorded = recorded_of(made)
    tables: list[list[PageTable]] = [paging.tables(made.kv, len(one)) for one in sequences]
    found: list[list[Tensor]] = [[] for _ in sequences]
    done = [0] * len(sequences)
    steps = ([640, 0, 255, 5], [16, 60, 0, 1], [1, 1, 1, 1], [1, 20, 4, 0], [1, 1, 2, 1])
    for counts in steps:
        batch = [
            Segment(one[at : at + count], at, table)
            for one, at, count, table in zip(sequences, done, counts, tables, strict=True)
            if count
        ]
        logits = recorded.step(batch)
        rows = logits.split([len(one.tokens) for one in batch])
        for at, count in enumerate(counts):
            if count:
                found[at].append(rows[len([1 for each in counts[:at] if each])])
            done[at] += count
    for tokens, count, parts in zip(sequences, done, found, strict=True):
        wanted = recorded.logits(alone(made, tokens[:count]))
        assert torch.equal(torch.cat(parts), wanted)


def test_pages_that_are_missing_are_noticed(random: torch.Generator) -> None:
    made = model(torch.float32, random)
    with pytest.raises(AssertionError):
        recorded_of(made).hidden([Segment([1], 256, paging.tables(made.kv, 256))])
