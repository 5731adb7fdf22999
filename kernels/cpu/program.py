"""Recorded programs on the CPU: one native call runs a whole token.

A token takes some two hundred operations; returning to Python between them would cost more than a
small model's arithmetic.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from kernels.cpu import library
from kernels.cpu.lowering import Lowering
from kernels.cpu.memory import memory
from kernels.cpu.schema import NativeKVLayer, NativeOp, NativeProgram
from kernels.ops import AddRows, Attend, Segment, StreamWeights
from kernels.programs.not_lowerable import refuse
from kernels.programs.program import Program
from kernels.states.kv_pages import PageTable
from kernels.states.layer_state import AT_END, PAGE_TOKENS

_LINE = 16  # floats of a cache line


def record(program: Program) -> Recorded:
    """Lower a program to native operations; raises NotLowerable."""
    return Recorded(program)


class Recorded:
    """A program as native operations, with its buffers; used by one thread at a time."""

    equal_bits = True
    exact = True

    def __init__(self, program: Program) -> None:
        lowering = Lowering(dict(program.widths), program.kv.layers)
        for one in program.body:
            if isinstance(one, Attend):
                lowering.add_angles(one)
        starts: list[int] = []
        self._fetches: dict[
            int, StreamWeights
        ] = {}  # by number of the operation before which it is due
        at = 0
        while at < len(program.body):
            if isinstance(one := program.body[at], StreamWeights):
                self._fetches[len(lowering.ops)] = one
            if lowering.may_begin_call(program.body[at]):
                starts.append(len(lowering.ops))
            at += lowering.lower(program.body[at:])
        self._body_end = len(lowering.ops)
        lowering.quantized = ("", 0)
        at = 0
        while at < len(program.head):
            rows = isinstance(program.head[at], AddRows)
            refuse(program.head[at], {"in a head, which has no tokens": rows})
            at += lowering.lower(program.head[at:])
        self._kept = lowering.kept
        self._offloaded = lowering.offloaded
        offloaded = {at for first, one in self._offloaded.items() for at in (first, one.end)}
        # A pass can be cancelled between pieces.
        self._pieces = sorted({0, *starts[1:], *self._fetches, *offloaded, self._body_end})
        self._calls = sorted({0, *self._fetches, *offloaded, len(lowering.ops)})  # of a step
        self._tables = lowering.tables
        self._names = list(lowering.widths)
        self._widths = lowering.widths
        self._hidden, self._logits = program.hidden, program.logits
        self._alternatives, self._is_rare = program.alternatives, program.is_rare
        self._ops = (NativeOp * len(lowering.ops))(*lowering.ops)
        self._buffers: dict[str, Tensor] = {}
        self._tokens = 0  # capacity of the buffers in rows
        self._pointers = (ctypes.c_void_p * len(self._names))()
        layers = map(library.native_kv_layer, program.kv.layers)
        self._layers = (NativeKVLayer * len(program.kv.layers))(*layers)
        windows = enumerate(program.kv.windows)
        self._state_groups = [group for group, window in windows if window == AT_END]
        self._native = NativeProgram(
            ops=self._ops,
            buffers=ctypes.addressof(self._pointers),
            layers=self._layers,
            cache_type=library.CACHES[program.kv.dtype],
            op_bytes=ctypes.sizeof(NativeOp),
        )

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch → hidden states [T, D] f32."""
        ids, native = self._batch(batch)
        try:
            self._begin(ids, given)
            for first, end in zip(self._pieces, self._pieces[1:], strict=False):
                checkpoint()
                self._fetch(first, checkpoint)
                self._run_piece(first, end, native, ids, checkpoint)
            self._fetch(self._body_end, checkpoint)
            width = self._widths[self._hidden]
            found = self._buffers[self._hidden][: len(ids) * width].view(-1, width)
            return found if self._is_rare else found.clone()
        finally:
            if self._is_rare:
                self._buffers.clear()
                self._tokens = 0

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        if self._logits == self._hidden:  # a model of embeddings without a last norm
            return hidden
        hidden = hidden.contiguous()
        tokens = hidden.shape[0]
        self._reserve(tokens)
        logits = torch.empty(tokens, self._widths[self._logits])
        self._set_buffer(self._hidden, hidden)
        self._set_buffer(self._logits, logits)
        rows = library.NativeBatch([(tokens, 0, ())])
        self._run(self._body_end, len(self._ops), rows, None)
        self._set_buffer(self._hidden, self._buffers[self._hidden])
        return logits

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens, bit-identical to the two calls → logits [T, V] f32."""
        if self._logits == self._hidden:
            return self.hidden(batch, given=given)
        ids, native = self._batch(batch)
        self._begin(ids, given)
        logits = torch.empty(len(ids), self._widths[self._logits])
        self._set_buffer(self._logits, logits)
        if not (self._fetches or self._offloaded):  # all weights are in memory
            self._run(0, self._calls[-1], native, ids)
            return logits
        for first, end in zip(self._calls, self._calls[1:], strict=False):
            self._fetch(first, lambda: None)
            self._run_piece(first, end, native, ids, lambda: None)
        return logits

    def _batch(
        self, batch: Sequence[Segment]
    ) -> tuple[ctypes.Array[ctypes.c_int64], library.NativeBatch]:
        """Token ids of all segments, and the segments as C structs."""
        tokens: list[int] = []
        segments: list[tuple[int, int, Sequence[PageTable]]] = []
        has_images = False
        for one in batch:  # a plain loop: this runs before every token
            tokens += one.tokens
            segments.append((len(one.tokens), one.position, one.tables))
            has_images = has_images or one.images is not None
        for group in self._state_groups:
            for one in batch:
                first = -(-one.position // PAGE_TOKENS)
                last = first + (one.position + len(one.tokens) - 1) // PAGE_TOKENS
                last -= one.position // PAGE_TOKENS  # page of the state after the last piece
                pages = one.tables[group].pages[max(first - 1, 0) : last + 1]
                missing = any(page is None for page in pages)
                there = len(pages) == last + 1 - max(first - 1, 0) and not missing
                assert there, "a page of a state is missing"
        images = [one.images for one in batch] if has_images else ()
        return (ctypes.c_int64 * len(tokens))(*tokens), library.NativeBatch(segments, images)

    def _fetch(self, at: int, checkpoint: Callable[[], None]) -> None:
        """Wait for the weights that the operations from `at` on read, if they are offloaded."""
        if (one := self._fetches.get(at)) is not None:
            one.streamer.fetch(one.layer, one.upcoming, checkpoint)

    def _run_piece(
        self,
        first: int,
        end: int,
        batch: library.NativeBatch,
        ids: object,
        checkpoint: Callable[[], None],
    ) -> None:
        """Run operations once, or those of offloaded experts for each group of them in memory."""
        if (offloaded := self._offloaded.get(first)) is None:
            self._run(first, end, batch, ids)
            return
        for _ in offloaded.groups(self._buffers[offloaded.buffer], checkpoint):
            self._run(first, end, batch, ids)

    def _run(self, first: int, end: int, batch: library.NativeBatch, ids: object) -> None:
        program, segments = ctypes.byref(self._native), batch.structs
        library.call("run", program, first, end, segments, len(segments), ids)

    def _begin(self, ids: ctypes.Array[ctypes.c_int64], given: Tensor | None) -> None:
        """Reserve the buffers, and fill those that the first operations read.

        They are the rows of tables that are not in memory, and hidden states [T, D] if given.
        """
        self._reserve(len(ids))
        for name, table in self._tables.items():
            rows = table.rows(torch.tensor(ids))
            self._buffers[name][: rows.numel()].copy_(rows.reshape(-1))
        if given is not None:
            self._buffers[self._hidden][: given.numel()].copy_(given.reshape(-1))

    def _set_buffer(self, name: str, tensor: Tensor) -> None:
        self._pointers[self._names.index(name)] = tensor.data_ptr()

    def _reserve(self, tokens: int) -> None:
        """Grow every buffer to this many rows, except logits, which belong to the caller."""
        if tokens <= self._tokens:
            return
        self._buffers.clear()
        if self._alternatives:
            self._share(tokens)
        for name in self._names:
            if name != self._logits or name == self._hidden:
                if name not in self._buffers:
                    self._buffers[name] = self._floats(tokens * self._widths[name])
                self._set_buffer(name, self._buffers[name])
        self._tokens = tokens

    def _share(self, tokens: int) -> None:
        """Lay the alternative sets of buffers into the same memory."""
        sizes = [[tokens * self._widths[name] for name in some] for some in self._alternatives]
        places = [[0, *accumulate(-(-size // _LINE) * _LINE for size in some)] for some in sizes]
        whole = self._floats(max(some[-1] for some in places))
        for names, starts, some in zip(self._alternatives, places, sizes, strict=True):
            for name, start, size in zip(names, starts, some, strict=False):
                self._buffers[name] = whole[start : start + size]

    def _floats(self, count: int) -> Tensor:
        """Memory for so many floats; that of a rare program goes back to the system once freed."""
        if not self._is_rare:
            return torch.empty(count)
        return memory(4 * count).view(torch.float32)
