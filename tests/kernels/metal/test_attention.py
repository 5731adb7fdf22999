"""Metal attention over KV pages against the reference."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gpu_attention import (
    CASES,
    SPAN_CASES,
    PagedSequence,
    copied,
    every_type,
    heads,
    rows_of,
    sequence,
    turns_of,
    wanted,
    wanted_step,
)
from gpu_results import check_close
from kernels.metal import arena, attention
from kernels.metal.attention import MetalHeads
from kernels.ops import Spans
from kernels.states.quantized_kv import QuantizedKV

# Normalized mean square error by type of the cache.
MOST_ERROR = {torch.float32: 1e-10, torch.float16: 1e-6, torch.int8: 1e-5}


def check_rows(found: PagedSequence, right: PagedSequence, count: int) -> None:
    """Values have the same bits, keys differ by the rounding of norm and RoPE; nothing else does."""
    end, most = found.length + count, MOST_ERROR[found.kv.layer.dtype]
    keys, values = zip(found.kv.rows(0, end), right.kv.rows(0, end), strict=True)
    dense = [rows if isinstance(rows, Tensor) else rows.dense() for rows in keys]
    check_close(dense[0].double(), dense[1].double(), most)
    one, other = values
    if isinstance(one, QuantizedKV):
        assert isinstance(other, QuantizedKV)
        assert torch.equal(one.codes, other.codes)
        assert torch.equal(one.scales, other.scales)
    else:
        assert isinstance(other, Tensor)
        assert torch.equal(one, other)
    for one, other in zip(found.kv.table.pages, right.kv.table.pages, strict=True):
        assert one is not None
        assert other is not None
        assert (one != other).float().mean() < 0.02


def step(
    one: MetalHeads,
    made: list[PagedSequence],
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    turns: Tensor | None = None,
) -> Tensor:
    positions = torch.tensor([each.length for each in made])
    found = arena.places([each.kv.table for each in made], 4)
    assert found is not None
    parts = attention.new_partial(one, len(made), q.device).fill_(math.nan)
    out = torch.full((len(made), one.heads * one.width), math.nan)
    tables = torch.tensor(found.entries)
    launch = attention.step_launch(one, q, k, v, positions, tables, parts, out, turns)
    launch(found.chunks, int(positions.max()) + 1)
    return out


def prompt(
    one: MetalHeads,
    made: PagedSequence,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    turns: Tensor | None = None,
    spans: Spans = Spans.CAUSAL,
) -> Tensor:
    found = arena.places([made.kv.table], 4)
    assert found is not None
    table = torch.tensor(found.entries[0])
    query, out = q.clone(), torch.full_like(q, math.nan)
    places = table, found.chunks, made.length
    attention.append_rows(one, query, k.clone(), v.clone(), *places, turns)
    attention.attend_rows(one, query, *places, out, spans)
    return out


# What is compiled anew for a case takes a second each; these are always tried.
QUICK = {
    "interleaved": torch.float32,
    "no rope": torch.float16,
    "no norm": torch.int8,
}
every_case = pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, marks=() if QUICK.get(case, dtype) == dtype else pytest.mark.slow)
        for case in CASES
        for dtype in MOST_ERROR
    ],
)


@every_case
def test_a_step_is_the_references(case: str, dtype: torch.dtype, random: torch.Generator) -> None:
    one = CASES[case](heads(MetalHeads, dtype, random))
    made = [sequence(one, length, length + 1, random) for length in (0, 75, 300)]
    others = [copied(each) for each in made]
    q, k, v = rows_of(one, len(made), random)
    right = wanted_step(one, others, q, k, v)
    found = step(one, made, q.clone(), k.clone(), v.clone())
    check_close(found, right, MOST_ERROR[dtype])
    for each, other in zip(made, others, strict=True):
        check_rows(each, other, 1)


@pytest.mark.parametrize(
    ("width", "group", "kv_heads", "dtype"),
    [
        (20, 1, 3, torch.float32),
        (20, 1, 3, torch.int8),
        (96, 2, 1, torch.int8),
        (128, 11, 1, torch.float16),
        pytest.param(6, 1, 1, torch.float16, marks=pytest.mark.slow),
        pytest.param(128, 11, 1, torch.int8, marks=pytest.mark.slow),
        pytest.param(256, 4, 1, torch.int8, marks=pytest.mark.slow),
        pytest.param(512, 3, 2, torch.int8, marks=pytest.mark.slow),
        pytest.param(576, 2, 1, torch.float32, marks=pytest.mark.slow),
    ],
)
def test_a_step_of_odd_heads(
    width: int, group: int, kv_heads: int, dtype: torch.dtype, random: torch.Generator
) -> None:
    one = heads(MetalHeads, dtype, random, width=width, group=group, kv_heads=kv_heads)
    made = sequence(one, 64, 65, random)
    other = copied(made)
    q, k, v = rows_of(one, 1, random)
    right = wanted(one, other, q, k, v)
    check_close(step(one, [made], q.clone(), k.clone(), v.clone()), right, MOST_ERROR[dtype])
    check_rows(made, other, 1)


@every_type
def test_splits_are_joined(
    dtype: torch.dtype, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.metal.attention.SPLIT_TOKENS", 60)
    one = heads(MetalHeads, dtype, random)
    made = [sequence(one, length, length + 1, random) for length in (2, 300)]
    others = [copied(each) for each in made]
    q, k, v = rows_of(one, len(made), random)
    right = wanted_step(one, others, q, k, v)
    assert one.splits(301) == 5
    check_close(step(one, made, q, k, v), right, MOST_ERROR[dtype])
    for each, other in zip(made, others, strict=True):
        check_rows(each, other, 1)


@every_type
def test_a_step_on_rows_that_another_layer_wrote(
    dtype: torch.dtype, random: torch.Generator
) -> None:
    one = heads(MetalHeads, dtype, random)
    made = sequence(one, 131, 131, random)
    q, _, _ = rows_of(one, 1, random)
    made.length = 130
    right = wanted(one, made, q, None, None)
    check_close(step(one, [made], q.clone(), None, None), right, MOST_ERROR[dtype])


@every_case
def test_a_prompt_is_the_references(case: str, dtype: torch.dtype, random: torch.Generator) -> None:
    one = CASES[case](heads(MetalHeads, dtype, random))
    made = sequence(one, 250, 270, random)
    other = copied(made)
    q, k, v = rows_of(one, 20, random)
    right = wanted(one, other, q, k, v)
    out = prompt(one, made, q, k, v)
    check_close(out, right, MOST_ERROR[dtype])
    check_rows(made, other, 20)


def test_each_pair_of_a_step_turns_by_its_own_position(random: torch.Generator) -> None:
    one = heads(MetalHeads, torch.float32, random)
    made = [sequence(one, length, length + 1, random) for length in (0, 300)]
    others = [copied(each) for each in made]
    (q, k, v), turns = rows_of(one, 2, random), turns_of(one, 2, random)
    right = wanted_step(one, others, q, k, v, turns)
    found = step(one, made, q.clone(), k.clone(), v.clone(), turns)
    check_close(found, right, MOST_ERROR[torch.float32])
    for each, other in zip(made, others, strict=True):
        check_rows(each, other, 1)


@pytest.mark.parametrize("dtype", [torch.float16, *(pytest.param(one, marks=pytest.mark.slow)
                                                    for one in (torch.float32, torch.int8))])  # fmt: skip
@pytest.mark.parametrize(("spans", "window", "cap"), SPAN_CASES)
def test_a_span_is_the_references(
    spans: Spans, window: int, cap: float, dtype: torch.dtype, random: torch.Generator
) -> None:
    """Over the end of a page, with positions of RoPE; what lies behind it is NaN."""
    one = replace(heads(MetalHeads, dtype, random), window=window, cap=cap)
    made = sequence(one, 230, 300, random)
    other = copied(made)
    (q, k, v), turns = rows_of(one, 50, random), turns_of(one, 50, random)
    right = wanted(one, other, q, k, v, turns, spans)
    check_close(prompt(one, made, q, k, v, turns, spans), right, MOST_ERROR[dtype])
    check_rows(made, other, 50)


@every_type
def test_pages_before_a_window_are_dropped(dtype: torch.dtype, random: torch.Generator) -> None:
    one = replace(heads(MetalHeads, dtype, random), window=70)
    made = sequence(one, 600, 620, random)
    other = copied(made)
    made.kv.table.set(0, None)
    made.kv.table.set(1, None)
    q, k, v = rows_of(one, 1, random)
    right = wanted(one, copied(other), q, k, v)
    check_close(step(one, [made], q.clone(), k, v), right, MOST_ERROR[dtype])
    q, k, v = rows_of(one, 20, random)
    check_close(prompt(one, made, q, k, v), wanted(one, other, q, k, v), MOST_ERROR[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_large_values_saturate(dtype: torch.dtype, random: torch.Generator) -> None:
    """An infinity would stay in the page."""
    one = heads(MetalHeads, dtype, random)
    made = sequence(one, 3, 5, random)
    other = copied(made)
    q, k, v = rows_of(one, 1, random)
    v[0, 5], v[0, 40], v[0, 45] = 1e6, math.inf, -math.inf
    right = wanted(one, other, q, k, v)
    check_close(step(one, [made], q, k, v), right, MOST_ERROR[dtype])
    check_rows(made, other, 1)
