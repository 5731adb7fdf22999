"""Program: a forward pass as an instruction list, which a backend may record and run in one call.

A model builds its program once, over named buffers; a backend that can record it runs a token
without returning to Python for each op. An instruction computes what the op of the same name in
`kernels.ops` computes: the T tokens of a batch are processed together, and a buffer holds one row
for each. The program is independent of backend and device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kernels.ops import Instruction, Segment
from kernels.states.kv_pages import KVLayout


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Instructions of a forward pass: body (tokens to hidden states) and head (these to logits)."""

    body: tuple[Instruction, ...]  # for every token: leaves the buffer `hidden` [T, D]
    layers: tuple[int, ...]  # start of each layer in `body`, where a pass can be cancelled
    head: tuple[Instruction, ...]  # from `hidden`, for the tokens whose logits are requested
    hidden: str
    logits: str  # [T, V]
    widths: Mapping[str, int]  # columns of every buffer
    kv: KVLayout  # of the pages it reads and writes
    # Sets of buffers of which one is in use at a time, so that they may lie in the same memory:
    # each is written after the last instruction that reads another.
    alternatives: tuple[tuple[str, ...], ...] = ()
    is_rare: bool = False  # long times are between its passes: no memory is kept for the next


class Recorded(Protocol):
    """A program recorded by a backend. Returned tensors belong to the caller.

    `given` [T, D] are the hidden states that a body without an embedding starts from.
    """

    equal_bits: bool  # whether a token gets the same bits in any batch
    exact: bool  # whether results have the bits of the backend's ops, run one by one

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = ...,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch, T in total → hidden states [T, D] f32.

        Keys and values are written to the pages. With native kernels the bits of a token's row
        depend on its sequence up to that token alone: not on the other segments, and not on how
        its sequence was cut into batches. The torch reference only gives equal bits for equal
        batches. `checkpoint` is called between layers and may raise to cancel; the rows of the
        batch's positions are then undefined, and so are the states after them, but no others.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        ...

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens, bit-identical to the two calls → logits [T, V] f32."""
        ...
