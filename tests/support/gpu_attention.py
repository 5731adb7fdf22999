"""Heads, sequences in pages and the reference's results, for tests of attention kernels of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from kernels.backend import reference
from kernels.gpu.heads import Heads
from kernels.ops import Spans
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedKV, PageTable
from kernels.states.layer_state import LayerShape
from poisoned_pool import poisoned

TYPES = (torch.float32, torch.float16, torch.int8)  # of a cache

every_type = pytest.mark.parametrize("dtype", TYPES)

BackendHeads = TypeVar("BackendHeads", bound=Heads)

# What a case changes of the heads; a function of a backend's heads that returns others.
CASES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda one: one,
    "window": lambda one: replace(one, window=70),
    "cap": lambda one: replace(one, cap=5.0),
    "interleaved": lambda one: replace(one, interleaved=True, frequencies=one.frequencies[:5]),
    "no rope": lambda one: replace(one, frequencies=one.frequencies[:0]),
    "no norm": lambda one: replace(one, query_norm=None, key_norm=None),
}
# Windows and caps of heads whose queries are a span.
SPAN_CASES = [(Spans.WHOLE, 0, 0.0), (Spans.WHOLE, 40, 5.0), (Spans.WINDOWED, 40, 0.0)]
# Those that not every backend has kernels for.
RARE_CASES: dict[str, Callable[[Any], Any]] = {
    "norm after rope": lambda one: replace(
        one, norms_rotated=True, frequencies=one.frequencies[:9]
    ),
    "sinks": lambda one: replace(one, sinks=torch.linspace(-3, 5, one.heads)),
    "chunks": lambda one: replace(one, chunk=PAGE_TOKENS, sinks=torch.linspace(-3, 5, one.heads)),
}


@dataclass
class PagedSequence:
    """A sequence whose earlier rows are in pages; what lies beside them is NaN."""

    kv: PagedKV
    length: int


def heads(
    kind: type[BackendHeads],
    dtype: torch.dtype,
    random: torch.Generator,
    *,
    width: int = 32,
    group: int = 3,
    kv_heads: int = 2,
) -> BackendHeads:
    """Heads of the second of two layers, with norms and RoPE, as a backend has them."""
    layout = KVLayout([LayerShape(kv_heads, width)] * 2, dtype)
    return kind(
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


def sequence(one: Heads, length: int, total: int, random: torch.Generator) -> PagedSequence:
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
    return PagedSequence(kv, length)


def copied(made: PagedSequence) -> PagedSequence:
    """The sequence in pages of its own."""
    table = PageTable()
    for page in made.kv.table.pages:
        table.append(None if page is None else page.clone())
    return PagedSequence(PagedKV(made.kv.layer, table), made.length)


def rows_of(one: Heads, tokens: int, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [T, H * C], and keys and values [T, K * C], of so many tokens."""
    q = torch.randn(tokens, one.heads * one.width, generator=random)
    k, v = torch.randn(2, tokens, one.kv_heads * one.width, generator=random)
    return q, k, v


def wanted(
    one: Heads,
    made: PagedSequence,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    turns: Tensor | None = None,
    spans: Spans = Spans.CAUSAL,
) -> Tensor:
    """What the reference gives for a segment [T, H * C]; it appends the segment's rows to `made`.

    `turns` i64 [T, pairs] are positions of RoPE; by `spans` the segment may be a span.
    """
    tokens = len(q)
    positions = torch.arange(made.length, made.length + tokens) if turns is None else turns

    def turned(x: Tensor, norm: Tensor | None) -> Tensor:
        x = x.view(tokens, -1, one.width)
        if norm is not None and not one.norms_rotated:
            x = reference.rms_norm(x, norm, one.epsilon)
        x = reference.rope(x, positions, one.frequencies, one.interleaved, one.rope_scale)
        if norm is not None and one.norms_rotated:
            x = reference.rms_norm(x, norm, one.epsilon)
        return x

    if k is not None and v is not None:
        made.kv.append(turned(k, one.key_norm), v.view(tokens, -1, one.width), made.length)
    query = turned(q, one.query_norm)
    options = one.scale, one.window, one.cap, one.sinks
    if not one.chunk:
        return reference.attention(query, made.kv, made.length, *options, spans)
    outs: list[Tensor] = []
    for at in range(tokens):  # each token with the pages of its chunk
        start = (made.length + at) // one.chunk * one.chunk
        seen = PagedKV(made.kv.layer, made.kv.table.since(start // PAGE_TOKENS))
        position = made.length + at - start
        outs.append(reference.attention(query[at : at + 1], seen, position, *options))
    return torch.cat(outs)


def wanted_step(
    one: Heads,
    made: Sequence[PagedSequence],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    turns: Tensor | None = None,
) -> Tensor:
    """What the reference gives for one token of each sequence [B, H * C]."""
    places = [None] * len(made) if turns is None else turns.split(1)
    operands = zip(made, q.split(1), k.split(1), v.split(1), places, strict=True)
    return torch.cat([wanted(one, *each) for each in operands])


def turns_of(one: Heads, tokens: int, random: torch.Generator) -> Tensor:
    """Positions of RoPE i64 [T, pairs], of each pair its own."""
    return torch.randint(900, (tokens, len(one.frequencies)), generator=random)
