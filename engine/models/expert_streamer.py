"""Expert streamer: experts of mixtures that stay in the model file, with a cache of those in use.

Of a mixture larger than the memory a token needs a few experts of each layer, which are known once
its router has run. All layers share a number of slots of memory, each for one expert: those that
are chosen and not there are read in place of the least recently used ones, while the first of them
are computed. Weights refer to the slot that their expert is in, and are valid until it is replaced.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from engine.models.slot_reader import Slot, SlotReader, Unit
from kernels.backend.backend import Backend
from kernels.weights.formats import Format
from kernels.weights.weight import Storage, Weight


class ExpertStreamer:
    """Reads experts into a cache when they are chosen; `read` is called by one thread at a time.

    Its threads end, and its files are closed, when it is no longer referenced.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        layers: Sequence[int],
        slot_bytes: int,
        slots: int,
        memory: Callable[[int], Tensor],
    ) -> None:
        """The experts of `layers` are read, each in at most `slot_bytes`; `memory` allocates all.

        Raises OSError for a file that cannot be opened, and MemoryError.
        """
        assert slots > 0, slots
        self.layers = tuple(layers)
        pieces = memory(slots * slot_bytes).split(slot_bytes)
        self._slots = dict.fromkeys(map(Slot, pieces))  # the least recently used first
        self._units: dict[tuple[int, int], Unit] = {}
        self._slot_of: dict[Unit, Slot] = {}
        self._unit_in: dict[Slot, Unit] = {}
        self._reader = SlotReader(paths)
        weakref.finalize(self, self._reader.close)

    @property
    def read_bytes(self) -> int:
        """Bytes read so far."""
        return self._reader.read_bytes

    def holds(self, layer: int, expert: int) -> bool:
        """Whether it reads a matrix of a layer; `expert` -1: of no expert."""
        return layer in self.layers and expert >= 0

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
        """A matrix of an expert, stored at an offset of one of the files.

        The weight's data are valid while `read` has yielded this expert last. They move with it.
        """
        unit = self._units.setdefault((layer, expert), Unit())
        memory = next(iter(self._slots)).memory
        return unit.add(backend, storage, format, shape, memory, file, offset)

    def read(
        self, layer: int, experts: Sequence[int], checkpoint: Callable[[], None]
    ) -> Iterator[Sequence[int]]:
        """See `kernels.ops.weight_streamers`. Raises ModelFileError when one cannot be read."""
        units = [self._units[layer, expert] for expert in experts]
        start = 0
        while start < len(units):
            ahead = units[start : start + len(self._slots)]
            self._place(ahead)
            self._reader.request([(self._slot_of[unit], unit) for unit in ahead])
            self._reader.wait(self._slot_of[ahead[0]], ahead[0], checkpoint)
            end = start + 1
            while end < start + len(ahead) and self._slot_of[units[end]].has(units[end]):
                end += 1
            yield experts[start:end]
            start = end

    def _place(self, units: Sequence[Unit]) -> None:
        """Give each of these units a slot, at most as many as there are, and mark them as used."""
        for unit in units:
            if (slot := self._slot_of.get(unit)) is not None:
                self._mark_used(slot)
        for unit in units:
            if unit not in self._slot_of:
                slot = next(iter(self._slots))
                if (before := self._unit_in.get(slot)) is not None:
                    del self._slot_of[before]
                self._slot_of[unit], self._unit_in[slot] = slot, unit
                _move(unit, slot)
                self._mark_used(slot)

    def _mark_used(self, slot: Slot) -> None:
        del self._slots[slot]
        self._slots[slot] = None


def _move(unit: Unit, slot: Slot) -> None:
    """Let the weights of a unit refer to the memory of a slot, all of which are of one storage."""
    for weight, place in unit.weights:
        data = weight.data
        start = slot.memory.storage_offset() + place  # bytes
        data.set_(data.untyped_storage(), start // data.element_size(), data.shape, data.stride())
