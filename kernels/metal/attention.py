"""Launches of the attention kernels over KV pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from kernels.gpu.heads import Heads
from kernels.metal.compile import library
from kernels.ops import Attend, Spans
from kernels.programs.not_lowerable import refuse
from kernels.programs.program import Program

MOST_SPLITS = 16  # thread groups that share the keys of one token and head
SPLIT_TOKENS = 512  # of one of them, at least; joining their results is one more launch

_GROUP = 128  # threads: the SIMD groups of attending.metal
_LANES = 32
_MOST_ROWS = 8  # queries of a thread group
_SUMS = 32  # numbers of a thread's registers, and of a thread group's memory, that are sums
_MOST_SPAN = 256  # channels, see `kernels.states.quantized_kv.hadamard`

_TYPES = {torch.float32: 0, torch.float16: 1, torch.int8: 2}

AttendStep = Callable[[Sequence[Tensor], int], None]  # given chunks and the most positions


@dataclass(frozen=True, slots=True)
class MetalHeads(Heads):
    """The heads of a layer, and the shaders compiled for them, with the sizes of their launches."""

    @classmethod
    def of(cls, one: Attend, program: Program) -> Self:
        """The heads of an instruction; raises NotLowerable."""
        lacking = {
            "with sinks": one.sinks is not None,
            "in chunks": bool(one.chunk),
            "with norms after RoPE": one.norms_rotated,
        }
        refuse(one, lacking)
        return super(MetalHeads, cls).of(one, program)

    def rows(self, queries: int) -> int:
        """Queries of a thread group, of so many that share keys."""
        return max(min(_SUMS // -(-self.width // 32), _MOST_ROWS, queries), 1)

    def splits(self, positions: int) -> int:
        """Thread groups that share the keys of so many positions."""
        seen = min(positions, self.window) if self.window else positions
        return min(max(seen // SPLIT_TOKENS, 1), MOST_SPLITS)

    def kernels(
        self, rows: int, *, writes: bool, turns: bool = False, spans: Spans = Spans.CAUSAL
    ) -> Any:
        """The kernels compiled for these heads."""
        span = min(self.width & -self.width, _MOST_SPAN)
        return library(
            "attention",
            ("TYPE", _TYPES[self.layer.dtype]),
            ("C", self.width),
            ("G", self.group),
            ("R", rows),
            ("PAIRS", len(self.frequencies)),
            ("INTERLEAVED", int(self.interleaved)),
            ("NORM", int(self.query_norm is not None)),
            ("TURNS", int(turns)),
            ("SPANS", int(spans)),
            ("WRITE", int(writes)),
            ("SPAN", span),
            ("ROUNDS", span.bit_length() - 1),
        )

    def numbers(self) -> list[float]:
        """Numbers that all kernels get."""
        numbers = self.epsilon, self.rope_scale, self.scale, self.cap, self.span_scale
        return [float(number) for number in numbers]

    @property
    def span_scale(self) -> float:
        """Factor of the Hadamard transform."""
        return float(min(self.width & -self.width, _MOST_SPAN) ** -0.5)

    def rotation(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Operands of norm and RoPE; those that there are not are never read."""
        return (
            q if self.query_norm is None else self.query_norm,
            q if self.key_norm is None else self.key_norm,
            self.frequencies if len(self.frequencies) else q,
        )


def new_partial(one: MetalHeads, sequences: int, device: torch.device) -> Tensor:
    """Memory for the parts of a step; layers that run one after the other can share it."""
    size = sequences * one.heads * MOST_SPLITS * (one.width + 2)
    return torch.empty(size, device=device)


def step_launch(
    one: MetalHeads,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    positions: Tensor,
    tables: Tensor,
    partial_sums: Tensor,
    out: Tensor,
    turns: Tensor | None = None,
) -> AttendStep:
    """Attention of one token of each sequence; `positions` i64 [B], `tables` i64 [B, pages].

    RoPE has the positions `turns` i64 [B, pairs], if they are given. Without k and v the row of
    this position is in its page. The result goes to `out` [B, H * C]. The function is called with
    the buffers of the pages and the number of positions at most.
    """
    sequences, rows = len(positions), one.rows(one.group)
    kernels = one.kernels(rows, writes=k is not None, turns=turns is not None)
    operands = (
        *(q, q if k is None else k, q if v is None else v, out, partial_sums, positions),
        *(positions if turns is None else turns, tables, *one.rotation(q)),
    )
    numbers = [*one.places(), one.window, tables.shape[1]], one.numbers()
    blocks = one.kv_heads * -(-one.group // rows)
    attend, combine, span_scale = kernels.attend_step, kernels.combine, one.span_scale
    heads = sequences * one.heads

    def launch(chunks: Sequence[Tensor], longest: int) -> None:
        splits = one.splits(longest)
        threads = splits * _GROUP, blocks, sequences
        attend(*operands, *chunks, *numbers, threads=threads, group_size=(_GROUP, 1, 1))
        if splits > 1:
            parts = partial_sums, out, splits, span_scale
            combine(*parts, threads=heads * _LANES, group_size=_LANES)

    return launch


def append_rows(
    one: MetalHeads,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    table: Tensor,
    chunks: Sequence[Tensor],
    start: int,
    turns: Tensor | None = None,
) -> None:
    """Rotate the queries [T, H * C] of a segment in place; append its keys and values.

    RoPE has the positions `turns` i64 [T, pairs], if they are given, else those from `start` on.
    """
    rows = one.rows(one.group)
    kernel = one.kernels(rows, writes=True, turns=turns is not None).append_rows
    heads = one.heads + (0 if k is None else one.kv_heads)
    given = q, q if k is None else k, q if v is None else v, table if turns is None else turns
    operands = *given, table, *one.rotation(q)
    numbers = [*one.places(), start, one.heads], one.numbers()
    threads = heads * _LANES, len(q)
    kernel(*operands, *chunks, *numbers, threads=threads, group_size=(_LANES, 1))


def attend_rows(
    one: MetalHeads,
    q: Tensor,
    table: Tensor,
    chunks: Sequence[Tensor],
    start: int,
    out: Tensor,
    spans: Spans = Spans.CAUSAL,
) -> None:
    """Attention of a segment's queries [T, H * C], rotated, whose keys are in their pages.

    By `spans` they may be a span.
    """
    queries = len(q) * one.group
    rows = one.rows(queries)
    kernel = one.kernels(rows, writes=True, spans=spans).attend_rows
    numbers = [*one.places(), start, one.window, len(q)], one.numbers()
    threads = -(-queries // rows) * _GROUP, one.kv_heads
    launch = partial(kernel, q, out, table, *chunks, *numbers)
    launch(threads=threads, group_size=(_GROUP, 1))
