"""Layer streamer: weights of layers that stay in the model file and are read for each pass.

A model larger than the memory keeps some of its layers there. The matrices of each other layer are
read for every pass into a slot of memory, which several of these layers share, in the layout of
their backend: while one layer is computed, threads read the next one into another slot. Weights
refer to their slot: a program runs as if all were in memory, with `StreamWeights` before each layer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from engine.models.slot_reader import Slot, SlotReader, Unit
from kernels.backend.backend import Backend
from kernels.weights.formats import Format
from kernels.weights.weight import Storage, Weight

SLOTS = 2  # one is computed while the other is filled


class LayerStreamer:
    """Reads layers into slots ahead of their use; `fetch` is called by one thread at a time.

    Its threads end, and its files are closed, when it is no longer referenced.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        layers: Sequence[int],
        slot_bytes: int,
        memory: Callable[[int], Tensor],
    ) -> None:
        """`layers` are offloaded, each in at most `slot_bytes`; `memory` allocates the slots.

        Raises OSError for a file that cannot be opened, and MemoryError.
        """
        self.layers = tuple(layers)
        slots = [Slot(memory(slot_bytes)) for _ in range(min(SLOTS, len(self.layers)))]
        # The slot of a layer is always the same, since weights refer to its memory.
        self._places = {
            layer: (slots[number % len(slots)], Unit()) for number, layer in enumerate(self.layers)
        }
        self._slots = len(slots)
        self._reader = SlotReader(paths)
        weakref.finalize(self, self._reader.close)

    @property
    def bytes_per_pass(self) -> int:
        """Bytes of all offloaded layers in the model's files."""
        return sum(piece.size_bytes for _, unit in self._places.values() for piece in unit.pieces)

    @property
    def read_bytes(self) -> int:
        """Bytes read so far."""
        return self._reader.read_bytes

    def holds(self, layer: int, expert: int) -> bool:
        """Whether it reads a matrix of a layer; `expert` -1: of no expert."""
        del expert
        return layer in self._places

    def add(
        self,
        layer: int,
        expert: int,
        backend: Backend,
        storage: Storage,
        format: Format,
        shape: tuple[int, ...],
        file: int,
        offset: int,
    ) -> Weight:
        """A matrix of an offloaded layer, stored at an offset of one of the files.

        The weight's data are valid from `fetch` of this layer until the next `fetch`.
        """
        del expert  # a layer is read whole
        slot, unit = self._places[layer]
        return unit.add(backend, storage, format, shape, slot.memory, file, offset)

    def fetch(self, layer: int, upcoming: Sequence[int], checkpoint: Callable[[], None]) -> None:
        """See `kernels.ops.weight_streamers`. Raises ModelFileError when it cannot be read."""
        wanted = upcoming if layer < 0 else (layer, *upcoming)
        self._reader.request([self._places[one] for one in wanted[: self._slots]])
        if layer >= 0:
            self._reader.wait(*self._places[layer], checkpoint)
