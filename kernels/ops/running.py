"""Pass: one run over the body or the head of a program, which instructions read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.ops.table import Table
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedState, PageTable, pieces


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Consecutive tokens of one sequence in a batch, at positions from `position` on.

    `tables` has one page table for each group of the program's KVLayout. They must have pages for
    these positions, which the pass writes, and hold the rows of all earlier ones that are visible;
    for states of fixed size the pages that `PagedState` names.
    """

    tokens: Sequence[int]
    position: int
    tables: Sequence[PageTable]


class Pass:
    """One run over the body or the head, with the buffers written so far."""

    def __init__(
        self,
        ops: Table,
        widths: Mapping[str, int],
        kv: KVLayout,
        buffers: dict[str, Tensor],
        batch: Sequence[Segment],
        attending: Callable[[Any, Mapping[str, Tensor]], Tensor | None] | None = None,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        """`batch` is empty in a head, which has no embedding and no attention.

        `attending` is what runs causal attention in place of several ops, see `kernels.ops.attend`.
        """
        self.ops, self.kv, self.batch = ops, kv, batch
        self.buffers = buffers
        self.attending, self.checkpoint = attending, checkpoint
        self._widths = widths
        self.rows = torch.tensor(
            [
                [token for one in batch for token in one.tokens],
                [one.position + at for one in batch for at in range(len(one.tokens))],
            ]
        )  # [2, T]: token ids and positions
        self.tokens = self.rows[0]  # on the host

    def set(self, name: str, values: Tensor) -> None:
        """Give a buffer other values."""
        assert values.shape[1] == self._widths[name], name
        self.buffers[name] = values

    def rows_on(self, device: torch.device) -> Tensor:
        """Token ids and positions [2, T] on a device, where they are copied once."""
        if self.rows.device != device:
            self.rows = self.rows.to(device)
        return self.rows

    def heads(self, name: str, width: int) -> Tensor:
        """A buffer [T, H*C] as [T, H, C]."""
        x = self.buffers[name]
        return x.view(len(x), -1, width)

    def states(self, layer: int) -> Iterator[tuple[slice, PagedState, int]]:
        """The pieces of the batch: its rows, the states, and the page that the piece writes."""
        place, first = self.kv.state(layer), 0
        for segment in self.batch:
            state = PagedState(place, segment.tables[place.group])
            index = -(-segment.position // PAGE_TOKENS)
            for number, piece in enumerate(pieces(segment.position, len(segment.tokens))):
                yield slice(first + piece.start, first + piece.stop), state, index + number
            first += len(segment.tokens)
