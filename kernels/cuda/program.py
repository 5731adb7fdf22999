"""Recorded programs on CUDA: decode steps of up to 16 sequences as captured launches.

Other batches, such as prompts, are run op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import triton
from torch import Tensor

from kernels.cuda import attention, graphs
from kernels.cuda.attention import CudaHeads
from kernels.cuda.graphs import Capturer
from kernels.cuda.lowering import Lowering
from kernels.gpu.turns import BatchTurns, is_token, span_pieces
from kernels.ops import Attend, Attending, Embed, Ops, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import PageTable

MOST_SEQUENCES = 16  # of a recorded step
_FEWEST_PAGES = 64  # of a page table: 16,384 positions


def record(program: Program, ops: Ops, device: torch.device) -> Recorded:
    """A program that fused kernels run; raises NotLowerable.

    It is lowered once without memory: the buckets are made when steps of their size run.
    """
    Lowering(program, 1, 1, torch.device("meta"))
    return Recorded(program, ops, device)


class _Bucket:
    """The steps of one number of sequences: body, head, and both."""

    def __init__(
        self,
        program: Program,
        size: int,
        pages: int,
        device: torch.device,
        capture: Capturer | None,
    ) -> None:
        self.pages = pages
        self.lowering = Lowering(program, size, pages, device)
        body, head = self.lowering.body, self.lowering.head
        self.body = graphs.Step(lambda: _run(body), capture)
        self.head = graphs.Step(lambda: _run(head), capture)
        self.both = graphs.Step(lambda: _run((*body, *head)), capture)


class Recorded:
    """A program whose decode steps are recorded; used by one thread at a time."""

    equal_bits = False  # few tokens and many are multiplied by other kernels
    exact = False  # fused kernels add in another order

    def __init__(
        self, program: Program, ops: Ops, device: torch.device, capture: Capturer | None = None
    ) -> None:
        self._program = program
        self._device = device
        self._interpreter = Interpreter(program, ops, self._attending, device=device)
        self._capture = capture or graphs.capturer(device)
        self._buckets: dict[int, _Bucket] = {}

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch → hidden states [T, D] f32."""
        if not _is_step(batch):
            return self._interpreter.hidden(batch, checkpoint, given)
        checkpoint()
        bucket = self._prepared(batch, given)
        bucket.body()
        return bucket.lowering.buffers[self._program.hidden][: len(batch)].clone()

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        count = len(hidden)
        if not 0 < count <= MOST_SEQUENCES:
            return self._interpreter.logits(hidden)
        bucket = self._bucket(count, 0)
        bucket.lowering.buffers[self._program.hidden][:count] = hidden
        bucket.head()
        return bucket.lowering.buffers[self._program.logits][:count].clone()

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens → logits [T, V] f32."""
        if not _is_step(batch):
            return self._interpreter.step(batch, given)
        bucket = self._prepared(batch, given)
        bucket.both()
        return bucket.lowering.buffers[self._program.logits][: len(batch)].clone()

    def prepare(self) -> None:
        """Compile and capture the step of one sequence, so that the first token need not wait."""
        program = self._program
        hidden = torch.zeros(1, program.widths[program.hidden], device=self._device)
        if program.body:
            tables = [PageTable() for _ in program.kv.page_bytes]
            for table, size in zip(tables, program.kv.page_bytes, strict=True):
                table.append(torch.zeros(size, dtype=torch.uint8, device=self._device))
            given = None if isinstance(program.body[0], Embed) else hidden
            segments = [Segment([0], 0, tables)]
            self.step(segments, given) if program.head else self.hidden(segments, given=given)
        elif program.head:
            self.logits(hidden)

    def _attending(self, batch: Sequence[Segment]) -> Attending:
        """The attention of a batch; page tables are copied to the device once."""
        program, device = self._program, self._device
        found: dict[int, list[Tensor]] = {}  # by group, of each segment
        turns = BatchTurns(batch, device)

        def places(group: int) -> list[Tensor]:
            tables = (one.tables[group] for one in batch)
            return [attention.addresses([one], len(one))[0].to(device) for one in tables]

        def attend(one: Attend, buffers: Mapping[str, Tensor]) -> Tensor:
            heads = CudaHeads.of(one, program)
            group = heads.layer.group
            if group not in found:
                found[group] = places(group)
            q = buffers[one.q].contiguous()
            k, v = (buffers[name].contiguous() if name else None for name in (one.k, one.v))
            out = torch.empty_like(q)
            first, turned = 0, turns.of(one.axes)
            for segment, table in zip(batch, found[group], strict=True):
                rows = slice(first, first + len(segment.tokens))
                keys, values = (None if each is None else each[rows] for each in (k, v))
                mine = None if turned is None else turned[rows]
                attention.append_rows(heads, q[rows], keys, values, table, segment.position, mine)
                for piece, spans in span_pieces(one, segment):
                    some = slice(first + piece.start, first + piece.stop)
                    start = segment.position + piece.start
                    attention.attend_rows(heads, q[some], table, start, out[some], spans)
                first = rows.stop
            return out

        return attend

    def _prepared(self, batch: Sequence[Segment], given: Tensor | None) -> _Bucket:
        """The bucket of a batch, its inputs in device memory.

        Sequences that a bucket has beyond the batch repeat the last one: they write the same rows.
        """
        pages = max((len(table) for one in batch for table in one.tables), default=0)
        bucket = self._bucket(len(batch), pages)
        made = bucket.lowering
        size = len(made.ids)
        every = [*batch, *[batch[-1]] * (size - len(batch))]
        made.ids.copy_(torch.tensor([one.tokens[0] for one in every]))
        made.positions.copy_(torch.tensor([one.position for one in every]))
        made.turns.fill(every)
        for group in range(self._program.kv.groups):
            tables = [one.tables[group] for one in every]
            made.tables[group].copy_(attention.addresses(tables, bucket.pages))
        for table, rows in made.looked_up:
            rows.copy_(table.rows(torch.tensor([one.tokens[0] for one in every])))
        if given is not None:
            hidden = made.buffers[self._program.hidden]
            hidden[: len(batch)] = given
            hidden[len(batch) : size] = given[-1:]
        return bucket

    def _bucket(self, count: int, pages: int) -> _Bucket:
        """The steps of so many sequences; made again when a page table outgrows theirs."""
        size = triton.next_power_of_2(count)
        found = self._buckets.get(size)
        if found is None or found.pages < pages:
            wide = max(triton.next_power_of_2(pages), _FEWEST_PAGES)
            found = _Bucket(self._program, size, wide, self._device, self._capture)
            self._buckets[size] = found
        return found


def _is_step(batch: Sequence[Segment]) -> bool:
    """Whether a batch is one token of each of some sequences, and none is of an image."""
    return 0 < len(batch) <= MOST_SEQUENCES and all(map(is_token, batch))


def _run(launches: Sequence[Callable[[], None]]) -> None:
    for one in launches:
        one()
