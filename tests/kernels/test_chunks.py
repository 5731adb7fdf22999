"""Attention within chunks of positions, against a definition in f64, and how far its pages reach."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import backends
from kernels.cpu import library
from kernels.ops import Attend, Columns, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout, PageTable
from kernels.states.layer_state import PAGE_TOKENS, LayerShape, needed_pages

H, K, C = 4, 2, 8
SCALE = 0.4
CHUNK = 2 * PAGE_TOKENS


def program(chunk: int) -> Program:
    """Attention whose keys and values are channels of the queries."""
    kv = KVLayout([LayerShape(K, C, chunk)], torch.float32)
    attend = Attend(
        *("x", "k", "v", "y"),
        layer=0,
        head_width=C,
        query_norm=None,
        key_norm=None,
        epsilon=0.0,
        frequencies=torch.empty(0),
        interleaved=False,
        rope_scale=1.0,
        scale=SCALE,
        chunk=chunk,
    )
    body = Columns("x", 0, K * C, "k"), Columns("x", K * C, K * C, "v"), attend
    body = *body, Columns("y", 0, H * C, "x")
    widths = {"x": H * C, "k": K * C, "v": K * C, "y": H * C}
    return Program(body, (0,), (), "x", "x", widths, kv)


def defined(x: Tensor, chunk: int) -> Tensor:
    """All scores at once, over the keys of the chunk of each query up to its own."""
    heads = x.double().view(len(x), H, C)
    keys, values = (
        each.repeat_interleave(H // K, 1) for each in (heads[:, :K], heads[:, K : 2 * K])
    )
    at = torch.arange(len(x))
    seen = (at[:, None] // chunk == at // chunk) & (at[:, None] >= at)
    scores = torch.einsum("thc,shc->hts", heads, keys) * SCALE
    shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hts,shc->thc", shares, values).flatten(1)


@pytest.mark.parametrize(
    "backend", [one for one in ("reference", "cpu") if one in backends.BACKENDS]
)
@pytest.mark.parametrize(
    "pieces", [(1_100,), (511, 1, 1, 587), (512, 512, 76), (700, 400), (1_023, 1, 1, 75)]
)
def test_a_token_sees_its_chunk(
    pieces: tuple[int, ...], backend: str, random: torch.Generator
) -> None:
    one = program(CHUNK)
    table, outs = PageTable(), list[Tensor]()
    x = torch.randn(sum(pieces), H * C, generator=random)
    run = Interpreter(one, backends.BACKENDS[backend].ops)
    position = 0
    for tokens in pieces:
        needed = needed_pages(CHUNK, position)
        for page in range(len(table)):  # what a sequence drops
            if page < needed.start:
                table.set(page, None)
        while len(table) * PAGE_TOKENS < position + tokens:
            table.append(torch.zeros(one.kv.page_bytes[0], dtype=torch.uint8))
        segment = Segment([0] * tokens, position, [table])
        outs.append(run.hidden([segment], given=x[position : position + tokens]))
        position += tokens
    expected = defined(x, CHUNK)
    torch.testing.assert_close(torch.cat(outs).double(), expected, rtol=1e-4, atol=1e-5)


def test_pages_of_a_part_are_those_of_the_table() -> None:
    table = PageTable()
    for number in range(40):
        table.append(torch.full((64,), number, dtype=torch.uint8))
    part = table.since(33)
    assert [int(page[0]) for page in part.pages if page is not None] == list(range(33, 40))
    assert part.address == table.address + 8 * 33


@pytest.mark.skipif("cpu" not in backends.BACKENDS, reason=library.reason())
def test_attention_in_chunks_is_interpreted() -> None:
    recorded = backends.BACKENDS["cpu"].record(program(CHUNK))
    assert isinstance(recorded, Interpreter)
    assert recorded.reason == "Attend in chunks"
