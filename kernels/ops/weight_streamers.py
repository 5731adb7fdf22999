"""Streamers: what reads weights that are not in memory when a program needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol


class WeightStreamer(Protocol):
    """Weights of layers that are read into a few slots of memory when they are needed."""

    @property
    def read_bytes(self) -> int:
        """Bytes read so far."""
        ...

    def fetch(self, layer: int, upcoming: Sequence[int], checkpoint: Callable[[], None]) -> None:
        """Wait until the weights of a layer are in memory, where they stay until the next call.

        Then those of `upcoming` are read in the background, in this order. With `layer` -1 no layer
        is in use any more. `checkpoint` is called while it waits and may raise to cancel.
        """
        ...


class ExpertStreamer(Protocol):
    """Experts of mixtures that are read into a cache of them when tokens have chosen them."""

    @property
    def read_bytes(self) -> int:
        """Bytes read so far."""
        ...

    def read(
        self, layer: int, experts: Sequence[int], checkpoint: Callable[[], None]
    ) -> Iterator[Sequence[int]]:
        """Experts of a layer in groups, in their order, each when its weights are in memory.

        They stay there until the next group is asked for, which is read meanwhile. The data of a
        weight may lie in another place than before. `checkpoint` is called while it waits and may
        raise to cancel.
        """
        ...
