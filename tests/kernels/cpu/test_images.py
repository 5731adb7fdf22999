"""Recorded passes with images: the bits of the ops, run one by one, and of any cut of a sequence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import paging
from kernels.backends import BACKENDS
from kernels.cpu import library
from kernels.cpu.program import record
from kernels.ops import Attend, Embed, GivenRows, ImageRows, Segment, Spans
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from two_layers import HEAD, TYPES, VOCABULARY, WIDTH, model, some_tokens

pytestmark = pytest.mark.usefixtures("instruction_set")

# Text, an image of 290 tokens that lies in two pages, a token, a small image, text.
FIRST, SECOND = range(40, 330), range(331, 337)
COUNT = 350


def seeing(dtype: torch.dtype, random: torch.Generator, spans: Spans = Spans.WHOLE) -> Program:
    """The model with given rows, a second part of which the first layer adds."""
    made = model(dtype, random)
    axes = torch.randint(3, (HEAD // 2,), generator=random, dtype=torch.int32)
    body = [
        replace(one, axes=axes, spans=spans)
        if isinstance(one, Attend)
        else replace(one, positions=None)
        if isinstance(one, Embed)
        else one
        for one in made.body
    ]
    middle = 1 + len(body) // 2
    first, second = body[1:middle], body[middle:]
    added = GivenRows("x", WIDTH, added=True)
    return replace(made, body=(body[0], GivenRows("x"), *first, added, *second))


def images(rows: torch.Tensor, positions: torch.Tensor, first: int, end: int) -> ImageRows:
    """Those of the tokens from `first` to before `end`."""
    numbers = [at for span in (FIRST, SECOND) for at in span]
    inside = [n for n, at in enumerate(numbers) if first <= at < end]
    spans = [one for one in (FIRST, SECOND) if first <= one.start and one.stop <= end]
    return ImageRows(
        rows[inside],
        torch.tensor([numbers[n] - first for n in inside], dtype=torch.int64),
        positions[first:end],
        [range(one.start - first, one.stop - first) for one in spans],
    )


@TYPES
@pytest.mark.parametrize(("threads", "spans"), [(1, Spans.WHOLE), (2, Spans.WINDOWED)])
def test_a_pass_with_images_equals_its_ops_in_any_pieces(
    dtype: torch.dtype, threads: int, spans: Spans, random: torch.Generator
) -> None:
    library.set_threads(threads)
    made, tokens = seeing(dtype, random, spans), some_tokens(COUNT, random)
    rows = torch.randn(len(FIRST) + len(SECOND), 2 * WIDTH, generator=random)
    positions = torch.randint(60, (COUNT, 3), generator=random)
    whole = images(rows, positions, 0, COUNT)
    segment = Segment(tokens, 0, paging.tables(made.kv, COUNT), whole)
    wanted = Interpreter(made, BACKENDS["cpu"].ops).hidden([segment])
    assert wanted.isfinite().all()
    recorded = record(made)
    again = Segment(tokens, 0, paging.tables(made.kv, COUNT), whole)
    assert torch.equal(recorded.hidden([again]), wanted)
    tables, found = paging.tables(made.kv, COUNT), []
    for first, end in ((0, 39), (39, 330), (330, 331), (331, 349), (349, 350)):
        other = Segment([5], 0, paging.tables(made.kv, 1))  # a chat without images
        piece = Segment(tokens[first:end], first, tables, images(rows, positions, first, end))
        found.append(recorded.hidden([other, piece])[1:])
    assert torch.equal(torch.cat(found), wanted)


def test_a_text_has_the_bits_of_a_model_that_does_not_see(random: torch.Generator) -> None:
    made, tokens = seeing(torch.float32, random), some_tokens(90, random)
    plain = replace(
        made,
        body=tuple(
            replace(one, axes=None, spans=Spans.CAUSAL) if isinstance(one, Attend) else one
            for one in made.body
            if not isinstance(one, GivenRows)
        ),
    )
    found, wanted = (
        record(one).hidden([Segment(tokens, 0, paging.tables(one.kv, 90))]) for one in (made, plain)
    )
    assert torch.equal(found, wanted)


def test_rows_and_positions_that_are_too_narrow_are_refused(random: torch.Generator) -> None:
    made = seeing(torch.float32, random)
    recorded = record(made)
    for one in (
        ImageRows(torch.zeros(1, 2 * WIDTH - 1), torch.tensor([0])),
        ImageRows(positions=torch.zeros(4, 2, dtype=torch.int64)),
    ):
        segment = Segment([VOCABULARY - 1] * 4, 0, paging.tables(made.kv, 4), one)
        with pytest.raises(ValueError, match="size is not supported"):
            recorded.hidden([segment])
