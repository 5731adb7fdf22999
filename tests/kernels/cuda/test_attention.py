"""Triton attention over KV pages against the reference, in the interpreter."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from gpu_attention import (
    CASES,
    RARE_CASES,
    SPAN_CASES,
    TYPES,
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
from kernels import cuda
from kernels.backend import reference
from kernels.cuda import attention, launch
from kernels.cuda.attention import CudaHeads
from kernels.ops import Spans
from kernels.states.kv_pages import KVLayout, LayerShape, PagedKV, PageTable

pytestmark = pytest.mark.sweep

FLOATS = torch.float32
# Normalized mean square error by type of the cache, whose rounding queries and shares have too.
MOST_ERROR = {torch.float32: 1e-10, torch.float16: 1e-5, torch.int8: 1e-4}


def check_rows(found: PagedSequence, right: PagedSequence, count: int) -> None:
    """The rows of both are equal but for rounding, and no other byte was written."""
    end, most = found.length + count, MOST_ERROR[found.kv.layer.dtype]
    for one, other in zip(found.kv.rows(0, end), right.kv.rows(0, end), strict=True):
        dense = [rows if isinstance(rows, Tensor) else rows.dense() for rows in (one, other)]
        check_close(dense[0].double(), dense[1].double(), most)
    for one, other in zip(found.kv.table.pages, right.kv.table.pages, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one == 0xFF, other == 0xFF) or (one != other).float().mean() < 0.02


def step(one: CudaHeads, made: list[PagedSequence], q: Tensor, k: Tensor | None, v: Tensor | None, splits: int,
         then: launch.Quantized | None = None, turns: Tensor | None = None) -> Tensor:  # fmt: skip
    positions = torch.tensor([each.length for each in made])
    tables = attention.addresses([each.kv.table for each in made], 4)
    scratch = attention.scratch_for(one, len(made), splits, q.device)
    scratch.partial.fill_(math.nan)
    out = torch.full((len(made), one.heads * one.width), math.nan)
    attention.attend_step(one, q, k, v, positions, tables, scratch, out, then, turns)
    assert not scratch.counters.any()
    return out


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs share the keys of short contexts too."""
    monkeypatch.setattr(attention, "LEAST_KEYS", 1)


@every_type
@pytest.mark.parametrize("case", [*CASES, *RARE_CASES])
@pytest.mark.usefixtures("shared")
def test_a_step_is_the_references(case: str, dtype: torch.dtype, random: torch.Generator) -> None:
    one = (CASES | RARE_CASES)[case](heads(CudaHeads, dtype, random))
    made = [sequence(one, length, length + 1, random) for length in (0, 75, 300)]
    others = [copied(each) for each in made]
    q, k, v = rows_of(one, len(made), random)
    right = wanted_step(one, others, q, k, v)
    found = step(one, made, q.clone(), k.clone(), v.clone(), splits=3)
    check_close(found, right, MOST_ERROR[dtype])
    for each, other in zip(made, others, strict=True):
        check_rows(each, other, 1)


@every_type
@pytest.mark.parametrize(("width", "group", "kv_heads"), [(20, 1, 3), (96, 2, 1), (128, 5, 1)])
def test_a_step_of_odd_heads(
    width: int, group: int, kv_heads: int, dtype: torch.dtype, random: torch.Generator
) -> None:
    one = heads(CudaHeads, dtype, random, width=width, group=group, kv_heads=kv_heads)
    made = sequence(one, 64, 65, random)
    other = copied(made)
    q, k, v = rows_of(one, 1, random)
    right = wanted(one, other, q, k, v)
    check_close(
        step(one, [made], q.clone(), k.clone(), v.clone(), splits=1), right, MOST_ERROR[dtype]
    )
    check_rows(made, other, 1)


@every_type
@pytest.mark.parametrize("least", [64, 128, 256])
def test_a_short_context_is_one_programs_alone(
    least: int, dtype: torch.dtype, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many programs as the length is worth: here one to four of five."""
    monkeypatch.setattr(attention, "LEAST_KEYS", least)
    one = heads(CudaHeads, dtype, random)
    made = [sequence(one, length, length + 1, random) for length in (least - 1, least, 250)]
    others = [copied(each) for each in made]
    q, k, v = rows_of(one, len(made), random)
    right = wanted_step(one, others, q, k, v)
    check_close(
        step(one, made, q.clone(), k.clone(), v.clone(), splits=5), right, MOST_ERROR[dtype]
    )
    for each, other in zip(made, others, strict=True):
        check_rows(each, other, 1)
    scratch = attention.scratch_for(one, 1, 5, q.device)
    scratch.partial.fill_(math.nan)
    positions, out = torch.tensor([least - 2]), torch.empty(1, one.heads * one.width)
    tables = attention.addresses([made[0].kv.table], 4)
    attention.attend_step(one, q[:1], None, None, positions, tables, scratch, out)
    assert scratch.partial.isnan().all(), "nothing is combined"


@every_type
@pytest.mark.usefixtures("shared")
def test_a_step_on_rows_that_another_layer_wrote(
    dtype: torch.dtype, random: torch.Generator
) -> None:
    one = heads(CudaHeads, dtype, random)
    made = sequence(one, 131, 131, random)
    q, _, _ = rows_of(one, 1, random)
    made.length = 130
    right = wanted(one, made, q, None, None)
    check_close(step(one, [made], q.clone(), None, None, splits=2), right, MOST_ERROR[dtype])


def test_a_step_quantizes_its_result(random: torch.Generator) -> None:
    one = heads(CudaHeads, torch.float16, random, width=64)
    made = sequence(one, 99, 100, random)
    q, k, v = rows_of(one, 1, random)
    right = wanted(one, copied(made), q, k, v)
    then = launch.new_quantized(1, one.heads * one.width, q.device)
    step(one, [made], q.clone(), k.clone(), v.clone(), 2, then)
    codes = then.words[:, :8].transpose(1, 2).contiguous().view(torch.int8).float()
    values = codes * then.words[:, 8].view(torch.float32)[..., None]
    check_close(values.flatten(1)[:, : right.shape[1]], right, MOST_ERROR[torch.int8])


@every_type
@pytest.mark.parametrize("case", [*CASES, *RARE_CASES])
def test_a_prompt_is_the_references(case: str, dtype: torch.dtype, random: torch.Generator) -> None:
    one = (CASES | RARE_CASES)[case](heads(CudaHeads, dtype, random))
    made = sequence(one, 250, 270, random)
    other = copied(made)
    q, k, v = rows_of(one, 20, random)
    right = wanted(one, other, q, k, v)
    table = attention.addresses([made.kv.table], 4)[0]
    query, out = q.clone(), torch.full_like(q, math.nan)
    attention.append_rows(one, query, k.clone(), v.clone(), table, made.length)
    attention.attend_rows(one, query, table, made.length, out)
    check_close(out, right, MOST_ERROR[dtype])
    check_rows(made, other, 20)


@pytest.mark.parametrize("case", ["plain", "interleaved"])
def test_each_pair_of_a_step_turns_by_its_own_position(case: str, random: torch.Generator) -> None:
    one = CASES[case](heads(CudaHeads, FLOATS, random))
    made = [sequence(one, length, length + 1, random) for length in (0, 300)]
    others = [copied(each) for each in made]
    (q, k, v), turns = rows_of(one, 2, random), turns_of(one, 2, random)
    right = wanted_step(one, others, q, k, v, turns)
    found = step(one, made, q.clone(), k.clone(), v.clone(), splits=2, turns=turns)
    check_close(found, right, MOST_ERROR[FLOATS])
    for each, other in zip(made, others, strict=True):
        check_rows(each, other, 1)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(one, marks=() if one == torch.float16 else pytest.mark.slow) for one in TYPES],
)
@pytest.mark.parametrize(("spans", "window", "cap"), SPAN_CASES)
def test_a_span_is_the_references(
    spans: Spans, window: int, cap: float, dtype: torch.dtype, random: torch.Generator
) -> None:
    """Over the end of a page, with positions of RoPE; what lies behind it is NaN."""
    one = replace(heads(CudaHeads, dtype, random), window=window, cap=cap)
    made = sequence(one, 230, 300, random)
    other = copied(made)
    (q, k, v), turns = rows_of(one, 50, random), turns_of(one, 50, random)
    right = wanted(one, other, q, k, v, turns, spans)
    table = attention.addresses([made.kv.table], 4)[0]
    query, out = q.clone(), torch.full_like(q, math.nan)
    attention.append_rows(one, query, k.clone(), v.clone(), table, made.length, turns)
    attention.attend_rows(one, query, table, made.length, out, spans)
    check_close(out, right, MOST_ERROR[dtype])
    check_rows(made, other, 50)


@pytest.mark.parametrize("sinks", [False, True])
def test_wide_heads_run_as_torch_operations(
    sinks: bool, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latent attention has heads of 576 channels, for which a GPU's shared memory is too small."""
    launched = Mock()
    monkeypatch.setattr(attention, "attend_rows", launched)
    ops, layout = cuda.backend_on(torch.device("cpu")).ops, KVLayout([LayerShape(1, 576)], FLOATS)
    kv = PagedKV(layout.kv(0), PageTable())
    kv.table.append(torch.zeros(layout.page_bytes[0], dtype=torch.uint8))
    kv.append(*torch.randn(2, 5, 1, 576, generator=random), 0)
    q, some = torch.randn(3, 2, 576, generator=random), torch.randn(2, generator=random)
    operands = q, kv, 2, 0.1, 0, 0.0, some if sinks else None
    assert torch.equal(ops.attention(*operands), reference.attention(*operands))
    launched.assert_not_called()
    sizes = 3, 5, 2, 1, 576, FLOATS
    assert ops.attention_bytes(*sizes) == reference.attention_bytes(*sizes)
