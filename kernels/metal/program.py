"""Recorded programs on Metal: decode steps of a few sequences as prepared launches.

Other batches, such as prompts, are run op by op, but for attention: its norms, RoPE and page writes
are one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from kernels.gpu.turns import BatchTurns, is_token, span_pieces
from kernels.metal import arena, attention, products
from kernels.metal.lowering import Lowering
from kernels.ops import Attend, Attending, Ops, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program

_FEWEST_PAGES = 64  # of a page table: 16,384 positions


def record(program: Program, ops: Ops, device: torch.device) -> Recorded:
    """A program that fused kernels run; raises NotLowerable.

    It is lowered once without memory: the buckets are made when steps of their size run.
    """
    Lowering(program, 1, 1, torch.device("meta"))
    return Recorded(program, ops, device)


class Recorded:
    """A program whose decode steps are recorded; used by one thread at a time."""

    equal_bits = False  # few tokens and many are multiplied by other kernels
    exact = False  # fused kernels add in another order

    def __init__(self, program: Program, ops: Ops, device: torch.device) -> None:
        self._program = program
        self._device = device
        self._interpreter = Interpreter(program, ops, self._attending, device=device)
        self._buckets: dict[int, tuple[int, Lowering]] = {}  # with the width of page tables

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch → hidden states [T, D] f32."""
        lowered = self._prepared(batch, given)
        if lowered is None:
            return self._interpreter.hidden(batch, checkpoint, given)
        checkpoint()
        _run(lowered.body)
        return lowered.buffers[self._program.hidden][: len(batch)].clone()

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        count = len(hidden)
        if not 0 < count <= products.FEW:
            return self._interpreter.logits(hidden)
        _, lowered = self._bucket(count, 0)
        lowered.buffers[self._program.hidden][:count] = hidden
        _run(lowered.head)
        return lowered.buffers[self._program.logits][:count].clone()

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens → logits [T, V] f32."""
        lowered = self._prepared(batch, given)
        if lowered is None:
            return self._interpreter.step(batch, given)
        _run(lowered.body)
        _run(lowered.head)
        return lowered.buffers[self._program.logits][: len(batch)].clone()

    def _prepared(self, batch: Sequence[Segment], given: Tensor | None) -> Lowering | None:
        """The bucket of a batch, its inputs in device memory; None: run the batch op by op.

        Sequences that a bucket has beyond the batch repeat the last one: they write the same rows.
        """
        if not (0 < len(batch) <= products.FEW and all(map(is_token, batch))):
            return None
        pages = max((len(table) for one in batch for table in one.tables), default=0)
        width, lowered = self._bucket(len(batch), pages)
        every = [*batch, *[batch[-1]] * (_padded(len(batch)) - len(batch))]
        groups = range(self._program.kv.groups)
        found = [arena.places([one.tables[group] for one in every], width) for group in groups]
        places = [one for one in found if one is not None]
        if len(places) < len(found):
            return None
        lowered.set_inputs(
            [one.tokens[0] for one in every],
            [one.position for one in every],
            [one.entries for one in places],
            [one.chunks for one in places],
        )
        lowered.turns.fill(every)
        if given is not None:
            hidden = lowered.buffers[self._program.hidden]
            hidden[: len(batch)] = given
            hidden[len(batch) :] = given[-1:]
        return lowered

    def _attending(self, batch: Sequence[Segment]) -> Attending:
        """The attention of a batch; page tables are copied to the device once."""
        program, device = self._program, self._device
        found: dict[int, list[tuple[Tensor, Sequence[Tensor]]] | None] = {}  # by group
        turns = BatchTurns(batch, device)

        def places(group: int) -> list[tuple[Tensor, Sequence[Tensor]]] | None:
            """Page tables of the sequences, and the buffers of each."""
            each = [arena.places([one.tables[group]], len(one.tables[group])) for one in batch]
            some = [one for one in each if one is not None]
            if len(some) < len(each):
                return None
            return [(torch.tensor(one.entries[0]).to(device), one.chunks) for one in some]

        def attend(one: Attend, buffers: Mapping[str, Tensor]) -> Tensor | None:
            heads = attention.MetalHeads.of(one, program)
            group = heads.layer.group
            if group not in found:
                found[group] = places(group)
            tables = found[group]
            if tables is None:
                return None
            q = buffers[one.q].contiguous()
            k, v = (buffers[name].contiguous() if name else None for name in (one.k, one.v))
            out = torch.empty_like(q)
            first, turned = 0, turns.of(one.axes)
            for segment, (table, chunks) in zip(batch, tables, strict=True):
                rows = slice(first, first + len(segment.tokens))
                keys, values = (None if each is None else each[rows] for each in (k, v))
                mine, start = None if turned is None else turned[rows], segment.position
                attention.append_rows(heads, q[rows], keys, values, table, chunks, start, mine)
                for piece, spans in span_pieces(one, segment):
                    some = slice(first + piece.start, first + piece.stop)
                    at = start + piece.start
                    attention.attend_rows(heads, q[some], table, chunks, at, out[some], spans)
                first = rows.stop
            return out

        return attend

    def _bucket(self, count: int, pages: int) -> tuple[int, Lowering]:
        """The steps of so many sequences; made again when a page table outgrows theirs."""
        size = _padded(count)
        found = self._buckets.get(size)
        if found is None or found[0] < pages:
            width = max(_padded(pages), _FEWEST_PAGES)
            found = width, Lowering(self._program, size, width, self._device)
            self._buckets[size] = found
        return found


def _padded(count: int) -> int:
    """The next power of two."""
    return 1 << max(count - 1, 0).bit_length()


def _run(launches: Sequence[Callable[[], None]]) -> None:
    for one in launches:
        one()
