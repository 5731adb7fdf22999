"""Launches of the attention kernels over KV pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
import triton
from torch import Tensor

from kernels.cuda.jit import attention as jit
from kernels.cuda.launch import Quantized, run
from kernels.gpu.heads import Heads
from kernels.ops import Attend, Spans
from kernels.programs.not_lowerable import refuse
from kernels.programs.program import Program
from kernels.states.kv_pages import PageTable

MOST_CHANNELS = 256  # of a head: what fits in registers
MOST_SPLITS = 16  # programs that share the keys of one token and head
LEAST_KEYS = 256  # of a program: fewer take less time than to combine what two have found

_TYPES = {torch.float32: 0, torch.float16: 1, torch.int8: 2}


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sizes of a program: what fits in registers and in the 99 KB of shared memory of any GPU.

    `tests/benchmarks/cuda_code.md` has what they take.
    """

    keys: int  # scored at once
    rows: int  # queries, at most
    warps: int
    stages: int  # of keys and values that are loaded ahead


# By type of the pages: of heads of up to 128 channels, and of wider ones.
_STEP_BLOCKS = {
    torch.float32: (Blocks(16, 16, 8, 3), Blocks(16, 16, 8, 3)),
    torch.float16: (Blocks(64, 16, 4, 3), Blocks(32, 16, 4, 3)),
    torch.int8: (Blocks(32, 16, 8, 3), Blocks(32, 16, 8, 3)),
}
_ROW_BLOCKS = {
    torch.float32: (Blocks(32, 32, 8, 1), Blocks(16, 16, 8, 1)),
    torch.float16: (Blocks(64, 64, 8, 2), Blocks(32, 64, 8, 1)),
    torch.int8: (Blocks(32, 32, 8, 2), Blocks(32, 16, 8, 2)),
}


@dataclass(frozen=True, slots=True)
class CudaHeads(Heads):
    """The heads of a layer, and the constants of the Triton kernels that follow from them."""

    @classmethod
    def of(cls, one: Attend, program: Program) -> Self:
        """The heads of an instruction; raises NotLowerable."""
        refuse(one, {f"of {one.head_width} channels": one.head_width > MOST_CHANNELS})
        return super(CudaHeads, cls).of(one, program)

    def sizes(self) -> dict[str, int]:
        """Constants of all kernels."""
        return {
            "H": self.heads,
            "K": self.kv_heads,
            "C": self.width,
            "CP": max(triton.next_power_of_2(self.width), 32),
            "TYPE": _TYPES[self.layer.dtype],
        }

    def rope(self) -> dict[str, object]:
        """Constants of kernels that rotate."""
        return {
            "PAIRS": len(self.frequencies),
            "INTERLEAVED": self.interleaved,
            "NORM": 0 if self.query_norm is None else 2 if self.norms_rotated else 1,
        }

    def limits(self) -> tuple[float, float, int, int]:
        """Scale and cap of scores, window and chunk of keys."""
        return self.scale, float(self.cap), self.window, self.chunk

    def sink_scores(self, other: Tensor) -> Tensor:
        """Scores of the sinks; `other`, which is not read, where there are none."""
        return other if self.sinks is None else self.sinks


class Scratch:
    """Memory in which the programs of a step leave their parts of a token's attention."""

    def __init__(
        self, sequences: int, kv_heads: int, splits: int, rows: int, device: torch.device
    ) -> None:
        """`rows` f32 for each program."""
        self.splits = splits
        self.partial = torch.empty(sequences * kv_heads * splits * rows, device=device)
        self.counters = torch.zeros(sequences * kv_heads, dtype=torch.int32, device=device)


def scratch_for(one: CudaHeads, sequences: int, splits: int, device: torch.device) -> Scratch:
    """Scratch of a layer; layers that run one after the other can share it."""
    sizes = one.sizes()
    rows = _rows(one) * (sizes["CP"] + 2)
    return Scratch(sequences, one.kv_heads, splits, rows, device)


def attend_step(
    one: CudaHeads,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    positions: Tensor,
    tables: Tensor,
    scratch: Scratch,
    out: Tensor,
    then: Quantized | None = None,
    turns: Tensor | None = None,
) -> None:
    """Attention of one token of each sequence; `positions` i64 [B], `tables` i64 [B, pages].

    RoPE has the positions `turns` i64 [B, pairs], if they are given. Without k and v the row of
    this position is in its page. The result goes to `out` [B, H * C], or quantized to `then`,
    which needs heads of whole units.
    """
    assert then is None or one.width % 32 == 0, one.width
    blocks = _STEP_BLOCKS[one.layer.dtype][one.width > 128]
    run(
        jit.attend_step,
        (len(positions), one.kv_heads, scratch.splits),
        q,
        q if k is None else k,
        q if v is None else v,
        out,
        out.view(torch.int32) if then is None else then.words,
        positions,
        positions if turns is None else turns,
        tables,
        tables.shape[1],
        scratch.partial,
        scratch.counters,
        *_rotation(one, q),
        one.sink_scores(q),
        *one.limits(),
        *one.places(),
        **one.sizes(),
        **one.rope(),
        G=one.group,
        R=_rows(one),
        BS=blocks.keys,
        SPLITS=scratch.splits,
        LEAST=max(LEAST_KEYS // blocks.keys, 1),
        WRITE=k is not None,
        UNITS=1 if then is None else then.words.shape[2],
        QUANTIZE=then is not None,
        SINKS=one.sinks is not None,
        TURNS=turns is not None,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )


def append_rows(
    one: CudaHeads,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    table: Tensor,
    start: int,
    turns: Tensor | None = None,
) -> None:
    """Rotate the queries [T, H * C] of a segment in place; append its keys and values.

    RoPE has the positions `turns` i64 [T, pairs], if they are given, else those from `start` on.
    """
    run(
        jit.append_rows,
        (len(q), one.heads + (0 if k is None else one.kv_heads)),
        q,
        q if k is None else k,
        q if v is None else v,
        table if turns is None else turns,
        table,
        start,
        *_rotation(one, q),
        *one.places(),
        **one.sizes(),
        **one.rope(),
        WRITE=k is not None,
        TURNS=turns is not None,
        num_warps=1,
    )


def attend_rows(
    one: CudaHeads,
    q: Tensor,
    table: Tensor,
    start: int,
    out: Tensor,
    spans: Spans = Spans.CAUSAL,
) -> None:
    """Attention of a segment's queries [T, H * C], rotated, whose keys are in their pages.

    By `spans` they may be a span.
    """
    blocks = _ROW_BLOCKS[one.layer.dtype][one.width > 128]
    rows = min(max(triton.next_power_of_2(len(q) * one.group), 16), blocks.rows)
    run(
        jit.attend_rows,
        (-(-len(q) * one.group // rows), one.kv_heads),
        q,
        out,
        table,
        start,
        len(q),
        one.sink_scores(q),
        *one.limits(),
        *one.places(),
        **one.sizes(),
        G=one.group,
        R=rows,
        BS=blocks.keys,
        SINKS=one.sinks is not None,
        SPANS=int(spans),
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )


def addresses(tables: Sequence[PageTable], width: int) -> Tensor:
    """Addresses of the pages of several sequences, i64 [B, width] on the host; 0: no page."""
    found = torch.zeros(len(tables), width, dtype=torch.int64)
    for at, table in enumerate(tables):
        pages = [0 if page is None else page.data_ptr() for page in table.pages]
        found[at, : len(pages)] = torch.tensor(pages, dtype=torch.int64)
    return found


def _rows(one: CudaHeads) -> int:
    """Rows of a program: the group's queries, at least as many as tensor cores multiply."""
    return max(triton.next_power_of_2(one.group), 16)


def _rotation(one: CudaHeads, q: Tensor) -> tuple[object, ...]:
    """Operands of norm and RoPE."""
    frequencies = one.frequencies if len(one.frequencies) else q
    return (
        q if one.query_norm is None else one.query_norm,
        q if one.key_norm is None else one.key_norm,
        one.epsilon,
        frequencies,
        one.rope_scale,
    )
