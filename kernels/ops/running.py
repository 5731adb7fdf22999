"""Pass: one run over the body or the head of a program, which instructions read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.ops.table import Table
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedState, PageTable, pieces

NO_ROWS = torch.empty(0, dtype=torch.int64)
_HOST = torch.device("cpu")


@dataclass(frozen=True, slots=True, eq=False)
class ImageRows:
    """What images change in a segment: rows in place of tokens, RoPE positions, attention.

    The tokens of `spans` attend to each other in both directions, see `Attend`. Spans are in order
    and do not overlap; one is never cut between segments.
    """

    rows: Tensor | None = None  # [n, W] f32, see `GivenRows`
    at: Tensor = NO_ROWS  # [n] i64: their tokens in the segment, ascending
    positions: Tensor | None = None  # [T, A] i64: for RoPE with `axes`
    spans: Sequence[range] = ()  # of tokens in the segment

    def check(self, tokens: int) -> None:
        """Raise ValueError unless it fits a segment of so many tokens."""
        rows = 0 if self.rows is None else len(self.rows)
        fits = self.at.dtype == torch.int64 and self.at.shape == (rows,)
        ends = [0, *(end for one in self.spans for end in (one.start, one.stop)), tokens]
        ordered = [*self.at.tolist(), tokens - 1 if rows else tokens]
        positions = self.positions
        if not fits or ordered != sorted(ordered) or (rows and ordered[0] < 0):
            raise ValueError(f"images: {rows} rows are not at ascending tokens of {tokens}")
        if positions is not None and (
            positions.dtype != torch.int64 or positions.dim() != 2 or len(positions) != tokens
        ):
            raise ValueError(f"images: positions {list(positions.shape)} are not i64 [{tokens}, A]")
        if ends != sorted(ends):
            raise ValueError(f"images: the spans {list(self.spans)} are not in order")


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
    images: ImageRows | None = None


def rope_positions(batch: Sequence[Segment], axes: Tensor) -> Tensor:
    """Positions [T, n] i64 for RoPE of the tokens of a batch, by the axis of each pair in `axes` [n].

    Every axis has the position of a token unless the images of its segment say otherwise.
    """
    wide: list[Tensor] = []
    for one in batch:
        if one.images is not None and one.images.positions is not None:
            wide.append(one.images.positions[:, axes])
        else:
            usual = torch.arange(one.position, one.position + len(one.tokens))
            wide.append(usual[:, None].expand(-1, len(axes)))
    return torch.cat(wide)


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
        device: torch.device = _HOST,
    ) -> None:
        """`batch` is empty in a head, which has no embedding and no attention.

        `device` has the buffers; `attending` is what runs causal attention in place of several ops, see `kernels.ops.attend`.
        """
        self.ops, self.kv, self.batch = ops, kv, batch
        self.buffers = buffers
        self.attending, self.checkpoint = attending, checkpoint
        self.device = device
        self._widths = widths
        self.rows = torch.tensor(
            [
                [token for one in batch for token in one.tokens],
                [one.position + at for one in batch for at in range(len(one.tokens))],
            ]
        )  # [2, T]: token ids and positions
        self.tokens = self.rows[0]  # on the host
        self._rope: dict[tuple[int, ...], Tensor] = {}  # positions by axes
        self._images: dict[int, tuple[Tensor, Tensor]] = {}  # rows of images, by segment

    def width(self, name: str) -> int:
        """Columns of a buffer."""
        return self._widths[name]

    def set(self, name: str, values: Tensor) -> None:
        """Give a buffer other values."""
        assert values.shape[1] == self._widths[name], name
        self.buffers[name] = values

    def rows_on(self, device: torch.device) -> Tensor:
        """Token ids and positions [2, T] on a device, where they are copied once."""
        if self.rows.device != device:
            self.rows = self.rows.to(device)
        return self.rows

    def rope_positions(self, axes: Tensor | None, device: torch.device) -> Tensor:
        """Positions for RoPE on a device: [T], or with `axes` [n] those [T, n] of each pair.

        They are copied there once for all instructions with the same axes.
        """
        if axes is None:
            return self.rows_on(device)[1]
        key = tuple(axes.tolist())
        if key not in self._rope:
            self._rope[key] = rope_positions(self.batch, axes)
        if self._rope[key].device != device:
            self._rope[key] = self._rope[key].to(device)
        return self._rope[key]

    def image_rows(self, segment: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
        """The rows of images of a segment and their places in the batch, copied to a device once."""
        images = self.batch[segment].images
        if images is None or images.rows is None:
            return None
        found = self._images.get(segment)
        if found is None or found[0].device != device:
            first = sum(len(one.tokens) for one in self.batch[:segment])
            found = images.rows.to(device), (images.at + first).to(device)
            self._images[segment] = found
        return found

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
