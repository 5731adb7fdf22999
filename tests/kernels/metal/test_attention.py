"""Metal attention over KV pages against the reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from kernels import reference
from kernels.kv_pages import PAGE_TOKENS, KVLayout, PagedKV, PageTable
from kernels.layer_state import LayerShape
from kernels.metal import arena, attention
from kernels.metal.attention import Heads
from kernels.quantized_kv import QuantizedKV

# Normalized mean square error by type of the cache.
MOST_ERROR = {torch.float32: 1e-10, torch.float16: 1e-6, torch.int8: 1e-5}

every_type = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])


@dataclass
class Sequence:
    """A sequence whose earlier rows are in pages; what lies beside them is NaN."""

    kv: PagedKV
    length: int


def heads(
    dtype: torch.dtype,
    random: torch.Generator,
    *,
    width: int = 32,
    group: int = 3,
    kv_heads: int = 2,
) -> Heads:
    layout = KVLayout([LayerShape(kv_heads, width)] * 2, dtype)
    return Heads(
        layer=layout.kv(1),
        heads=group * kv_heads,
        query_norm=torch.rand(width, generator=random) + 0.5,
        key_norm=torch.rand(width, generator=random) + 0.5,
        epsilon=1e-6,
        frequencies=10000.0 ** (-torch.arange(0, width // 2) / (width // 2)),
        interleaved=False,
        rope_scale=1.1,
        scale=width**-0.5,
    )


def poisoned(size: int) -> Tensor:
    """A page of NaN, in any float type."""
    return torch.full((size,), 0xFF, dtype=torch.uint8)


def sequence(one: Heads, length: int, total: int, random: torch.Generator) -> Sequence:
    """A sequence of so many rows, with pages for `total`."""
    layout = KVLayout([one.layer.shape] * 2, one.layer.dtype)
    table = PageTable()
    for _ in range(-(-total // PAGE_TOKENS)):
        table.append(poisoned(layout.page_bytes[0]))
    kv = PagedKV(one.layer, table)
    if length:
        shape = length, one.kv_heads, one.width
        kv.append(
            torch.randn(shape, generator=random), torch.randn(shape, generator=random) + 0.3, 0
        )
    return Sequence(kv, length)


def wanted(one: Heads, made: Sequence, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
    """What the reference gives on a copy of the pages, and the rows that it stores."""
    tokens = len(q)
    positions = torch.arange(made.length, made.length + tokens)

    def turned(x: Tensor, norm: Tensor | None) -> Tensor:
        x = x.view(tokens, -1, one.width)
        if norm is not None:
            x = reference.rms_norm(x, norm, one.epsilon)
        return reference.rope(x, positions, one.frequencies, one.interleaved, one.rope_scale)

    if k is not None and v is not None:
        made.kv.append(turned(k, one.key_norm), v.view(tokens, -1, one.width), made.length)
    query = turned(q, one.query_norm)
    return reference.attention(query, made.kv, made.length, one.scale, one.window, one.cap)


def copied(made: Sequence) -> Sequence:
    table = PageTable()
    for page in made.kv.table.pages:
        table.append(None if page is None else page.clone())
    return Sequence(PagedKV(made.kv.layer, table), made.length)


def check_close(found: Tensor, right: Tensor, dtype: torch.dtype) -> None:
    assert found.isfinite().all()
    error = float((found.double() - right).square().sum() / right.double().square().sum())
    assert error <= MOST_ERROR[dtype], error


def check_rows(found: Sequence, right: Sequence, count: int) -> None:
    """Values have the same bits, keys differ by the rounding of norm and RoPE; nothing else does."""
    end = found.length + count
    keys, values = zip(found.kv.rows(0, end), right.kv.rows(0, end), strict=True)
    dense = [rows if isinstance(rows, Tensor) else rows.dense() for rows in keys]
    check_close(dense[0].double(), dense[1].double(), found.kv.layer.dtype)
    one, other = values
    if isinstance(one, QuantizedKV):
        assert isinstance(other, QuantizedKV)
        assert torch.equal(one.codes, other.codes)
        assert torch.equal(one.scales, other.scales)
    else:
        assert isinstance(other, Tensor)
        assert torch.equal(one, other)
    for page, wanted in zip(found.kv.table.pages, right.kv.table.pages, strict=True):
        assert page is not None
        assert wanted is not None
        assert (page != wanted).float().mean() < 0.02


def rows_of(one: Heads, tokens: int, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    q = torch.randn(tokens, one.heads * one.width, generator=random)
    k, v = torch.randn(2, tokens, one.kv_heads * one.width, generator=random)
    return q, k, v


def step(one: Heads, made: list[Sequence], q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
    positions = torch.tensor([each.length for each in made])
    found = arena.places([each.kv.table for each in made], 4)
    assert found is not None
    parts = attention.new_partial(one, len(made), q.device).fill_(math.nan)
    out = torch.full((len(made), one.heads * one.width), math.nan)
    tables = torch.tensor(found.entries)
    launch = attention.step_launch(one, q, k, v, positions, tables, parts, out)
    launch(found.chunks, int(positions.max()) + 1)
    return out


def prompt(one: Heads, made: Sequence, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    found = arena.places([made.kv.table], 4)
    assert found is not None
    table = torch.tensor(found.entries[0])
    query, out = q.clone(), torch.full_like(q, math.nan)
    attention.append_rows(one, query, k.clone(), v.clone(), table, found.chunks, made.length)
    attention.attend_rows(one, query, table, found.chunks, made.length, out)
    return out


Case = Callable[[Heads], Heads]
CASES: dict[str, Case] = {
    "plain": lambda one: one,
    "window": lambda one: replace(one, window=70),
    "cap": lambda one: replace(one, cap=5.0),
    "interleaved": lambda one: replace(one, interleaved=True, frequencies=one.frequencies[:5]),
    "no rope": lambda one: replace(one, frequencies=one.frequencies[:0]),
    "no norm": lambda one: replace(one, query_norm=None, key_norm=None),
}
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
    one = CASES[case](heads(dtype, random))
    made = [sequence(one, length, length + 1, random) for length in (0, 75, 300)]
    others = [copied(each) for each in made]
    q, k, v = rows_of(one, len(made), random)
    operands = zip(others, q.split(1), k.split(1), v.split(1), strict=True)
    right = torch.cat([wanted(one, *each) for each in operands])
    found = step(one, made, q.clone(), k.clone(), v.clone())
    check_close(found, right, dtype)
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
    one = heads(dtype, random, width=width, group=group, kv_heads=kv_heads)
    made = sequence(one, 64, 65, random)
    other = copied(made)
    q, k, v = rows_of(one, 1, random)
    right = wanted(one, other, q, k, v)
    check_close(step(one, [made], q.clone(), k.clone(), v.clone()), right, dtype)
    check_rows(made, other, 1)


@every_type
def test_splits_are_joined(
    dtype: torch.dtype, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.metal.attention.SPLIT_TOKENS", 60)
    one = heads(dtype, random)
    made = [sequence(one, length, length + 1, random) for length in (2, 300)]
    others = [copied(each) for each in made]
    q, k, v = rows_of(one, len(made), random)
    operands = zip(others, q.split(1), k.split(1), v.split(1), strict=True)
    right = torch.cat([wanted(one, *each) for each in operands])
    assert one.splits(301) == 5
    check_close(step(one, made, q, k, v), right, dtype)
    for each, other in zip(made, others, strict=True):
        check_rows(each, other, 1)


@every_type
def test_a_step_on_rows_that_another_layer_wrote(
    dtype: torch.dtype, random: torch.Generator
) -> None:
    one = heads(dtype, random)
    made = sequence(one, 131, 131, random)
    q, _, _ = rows_of(one, 1, random)
    made.length = 130
    right = wanted(one, made, q, None, None)
    check_close(step(one, [made], q.clone(), None, None), right, dtype)


@every_case
def test_a_prompt_is_the_references(case: str, dtype: torch.dtype, random: torch.Generator) -> None:
    one = CASES[case](heads(dtype, random))
    made = sequence(one, 250, 270, random)
    other = copied(made)
    q, k, v = rows_of(one, 20, random)
    right = wanted(one, other, q, k, v)
    out = prompt(one, made, q, k, v)
    check_close(out, right, dtype)
    check_rows(made, other, 20)


@every_type
def test_pages_before_a_window_are_dropped(dtype: torch.dtype, random: torch.Generator) -> None:
    one = replace(heads(dtype, random), window=70)
    made = sequence(one, 600, 620, random)
    other = copied(made)
    made.kv.table.set(0, None)
    made.kv.table.set(1, None)
    q, k, v = rows_of(one, 1, random)
    right = wanted(one, copied(other), q, k, v)
    check_close(step(one, [made], q.clone(), k, v), right, dtype)
    q, k, v = rows_of(one, 20, random)
    check_close(prompt(one, made, q, k, v), wanted(one, other, q, k, v), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_large_values_saturate(dtype: torch.dtype, random: torch.Generator) -> None:
    """An infinity would stay in the page."""
    one = heads(dtype, random)
    made = sequence(one, 3, 5, random)
    other = copied(made)
    q, k, v = rows_of(one, 1, random)
    v[0, 5], v[0, 40], v[0, 45] = 1e6, math.inf, -math.inf
    right = wanted(one, other, q, k, v)
    check_close(step(one, [made], q, k, v), right, dtype)
    check_rows(made, other, 1)
