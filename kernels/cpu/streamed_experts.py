"""Offloaded experts of a recorded program: operations that run once for each group in memory.

Routes are computed by operations before these, and outputs are added by those after them: in
between the products of an expert depend on no other, so groups give the bits of all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cpu.schema import NativeWeight
from kernels.weights.weight import Weight

# Of a mixture, see `kernels.ops.weight_streamers.ExpertStreamer.read`.
Read = Callable[[Sequence[int], Callable[[], None]], Iterator[Sequence[int]]]


@dataclass(frozen=True, slots=True)
class StreamedExperts:
    """The operations of a mixture between its routes and the sum of its outputs."""

    read: Read
    end: int  # the operation after them
    buffer: str  # of the groups of pairs: see `Groups` in native/run/experts.inc
    count: int  # experts
    matrices: Sequence[tuple[NativeWeight, Weight]]  # of all products, each of all experts

    def groups(self, buffer: Tensor, checkpoint: Callable[[], None]) -> Iterator[None]:
        """Let the operations compute one group of the chosen experts after the other.

        Raises what the streamer and `checkpoint` raise.
        """
        numbers = buffer[: 2 * self.count + 2].view(torch.int32)
        used = numbers[self.count + 1 : -1]
        chosen: list[int] = used[: int(numbers[-1])].tolist()
        for group in self.read(chosen, checkpoint):
            for expert in group:
                for native, weight in self.matrices[expert :: self.count]:
                    native.data = weight.data.data_ptr()
            used[: len(group)] = torch.tensor(group, dtype=torch.int32)
            numbers[-1] = len(group)
            yield
