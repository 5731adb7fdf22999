"""Layer pager: weights of layers that stay in the model file and are read when a pass needs them.

A model larger than the memory keeps some of its layers there. The matrices of each other layer are
read for every pass into a slot of memory, which several of these layers share, in the layout of
their backend: while one layer is computed, threads read the next one into another slot. Weights
refer to their slot, so a program runs as if all were in memory, with a `Fetch` before each layer.

The layers are read from the model file itself, and packed on the way: packing is several times as
fast as a disk, so a second copy of the model in the packed layout would gain nothing.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import EngineError, Fault, FaultKind, ModelFileError
from engine.host.direct_file import DirectFile, ReadBuffer
from kernels.backend import Backend
from kernels.formats import Format
from kernels.weight import Storage, Weight

SLOTS = 2  # one is computed while the other is filled
WORKERS = 2  # threads: one packs while the other reads
PIECE_BYTES = 2 << 20  # read and packed at a time, about 2 ms; more only if one group of rows is
_ALIGNMENT = 64  # bytes, of a matrix in a slot
_POLL_SECONDS = 0.01  # between two looks at a cancellation


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of a matrix, and their place in a file of the model."""

    backend: Backend
    weight: Weight
    first: int
    end: int
    file: int
    offset: int
    size_bytes: int


@dataclass(slots=True, eq=False)
class _Slot:
    """Memory of one layer at a time."""

    memory: Tensor  # u8
    layer: int = -1  # whose pieces it has, all or some
    begun: int = 0  # pieces handed to a thread
    done: int = 0
    error: EngineError | None = None  # of reading the layer
    stale: bool = False  # the error is of an earlier pass: read again once no piece is running

    @property
    def running(self) -> int:
        """Pieces that threads are reading."""
        return self.begun - self.done

    def assign(self, layer: int) -> None:
        """Drop what it has, to be filled with another layer; -1: none."""
        self.layer, self.begun, self.done, self.error = layer, 0, 0, None
        self.stale = False


@dataclass(frozen=True, slots=True)
class _File:
    """An open file of the model, and its size and modification time when it was opened."""

    file: DirectFile
    status: tuple[int, int]


class LayerPager:
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
        """`layers` are paged, each in at most `slot_bytes`; `memory` allocates the slots.

        Raises OSError for a file that cannot be opened, and MemoryError.
        """
        self.layers = tuple(layers)
        self._used = dict.fromkeys(self.layers, 0)  # bytes of a layer's matrices
        slots = [_Slot(memory(slot_bytes)) for _ in range(min(SLOTS, len(self.layers)))]
        self._state = _State([_opened(path) for path in paths], slots, self.layers)
        weakref.finalize(self, self._state.close)

    @property
    def bytes_per_pass(self) -> int:
        """Bytes of all paged layers in the model's files."""
        return sum(piece.size_bytes for layer in self.layers for piece in self._state.pieces[layer])

    @property
    def read_bytes(self) -> int:
        """Bytes read so far."""
        return self._state.read_bytes

    def add(
        self,
        layer: int,
        backend: Backend,
        storage: Storage,
        format: Format,
        shape: tuple[int, ...],
        file: int,
        offset: int,
    ) -> Weight:
        """A matrix of a paged layer, stored at an offset of one of the files.

        The weight's data are valid from `fetch` of this layer until the next `fetch`.
        """
        slot = self._state.slot_of(layer)
        start = self._used[layer]
        weight = backend.empty(format, shape, slot.memory[start:], storage)
        self._used[layer] = start + slot_size([weight.size_bytes])
        rows, row_bytes = weight.shape[0], format.row_bytes(shape[-1])
        group = 1 if weight.layout == "file" else backend.group_rows(format)
        step = max(PIECE_BYTES // (group * row_bytes), 1) * group
        for first in range(0, rows, step):
            last = min(first + step, rows)
            self._state.pieces[layer].append(
                _Piece(
                    *(backend, weight, first, last),
                    *(file, offset + first * row_bytes, (last - first) * row_bytes),
                )
            )
        return weight

    def fetch(self, layer: int, upcoming: Sequence[int], checkpoint: Callable[[], None]) -> None:
        """See `kernels.program.Pager`. Raises ModelFileError when the layer cannot be read."""
        self._state.fetch(layer, upcoming, checkpoint)


def slot_size(matrices: Sequence[int]) -> int:
    """The memory in a slot of matrices of so many bytes each."""
    return sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in matrices)


class _State:
    """What the threads of a pager share; it outlives the pager until they end."""

    def __init__(
        self, files: Sequence[_File], slots: Sequence[_Slot], layers: Sequence[int]
    ) -> None:
        self.slots = slots
        self.pieces: dict[int, list[_Piece]] = {layer: [] for layer in layers}
        self.read_bytes = 0
        self._files = files
        self._numbers = {layer: number for number, layer in enumerate(layers)}
        self._wake = threading.Condition()
        self._wanted: tuple[int, ...] = ()  # layers, first the one in use: it is not overwritten
        self._threads: list[threading.Thread] = []
        self._closed = False

    def slot_of(self, layer: int) -> _Slot:
        """The slot of a layer: always the same, since weights refer to its memory."""
        return self.slots[self._numbers[layer] % len(self.slots)]

    def fetch(self, layer: int, upcoming: Sequence[int], checkpoint: Callable[[], None]) -> None:
        wanted = upcoming if layer < 0 else (layer, *upcoming)
        with self._wake:
            self._wanted = tuple(wanted[: len(self.slots)])
            for failed in [slot for slot in self.slots if slot.error]:  # try again
                failed.stale = True
                self._reset_stale(failed)
            self._start()
            self._wake.notify_all()
        if layer >= 0:
            self._wait(layer, checkpoint)

    def _reset_stale(self, slot: _Slot) -> None:
        if slot.stale and not slot.running:
            slot.assign(-1)

    def close(self) -> None:
        """End the threads and close the files."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()
        for one in self._files:
            one.file.close()

    def _start(self) -> None:
        """Start the threads at first use."""
        while len(self._threads) < WORKERS:
            name = f"layers {len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()

    def _wait(self, layer: int, checkpoint: Callable[[], None]) -> None:
        slot = self.slot_of(layer)
        while True:
            with self._wake:
                error = None if slot.stale else slot.error
                if slot.layer == layer and error is not None:
                    # A new one: its traceback would keep the pager alive.
                    raise ModelFileError(str(error), error.remedy, error.fault)
                if slot.layer == layer and slot.done == len(self.pieces[layer]):
                    return
                self._wake.wait(_POLL_SECONDS)
            checkpoint()

    # --- threads --------------------------------------------------------------------------------

    def _work(self) -> None:
        """Read pieces until the pager is closed."""
        buffer = ReadBuffer(1)
        while (found := self._next()) is not None:
            slot, piece = found
            error: EngineError | None = None
            try:
                if piece.size_bytes > buffer.size:
                    buffer = ReadBuffer(piece.size_bytes)
                self._read(piece, buffer)
            except BaseException as fault:  # noqa: BLE001  `fetch` raises it
                error = _unreadable(self._files[piece.file].file.path, fault)
            with self._wake:
                slot.done += 1
                slot.error = slot.error or error
                self._reset_stale(slot)
                self.read_bytes += piece.size_bytes
                self._wake.notify_all()

    def _next(self) -> tuple[_Slot, _Piece] | None:
        """The next piece to read, once there is one; None when the pager is closed."""
        with self._wake:
            while not self._closed:
                if (found := self._due()) is not None:
                    return found
                self._wake.wait()
        return None

    def _due(self) -> tuple[_Slot, _Piece] | None:
        """The next piece of the wanted layers, in their order."""
        taken: list[_Slot] = []
        for layer in self._wanted:
            slot = self.slot_of(layer)
            if slot in taken or not self.pieces[layer]:
                continue  # of a layer that is needed earlier
            taken.append(slot)
            if slot.layer != layer and not slot.running:
                slot.assign(layer)
            if slot.layer == layer and not slot.error and slot.begun < len(self.pieces[layer]):
                slot.begun += 1
                return slot, self.pieces[layer][slot.begun - 1]
        return None

    def _read(self, piece: _Piece, buffer: ReadBuffer) -> None:
        one = self._files[piece.file]
        rows = one.file.read(piece.offset, piece.size_bytes, buffer)
        if _status(one.file) != one.status:
            raise EOFError
        piece.backend.fill(piece.weight, piece.first, piece.end, torch.from_numpy(rows))


def _opened(path: Path) -> _File:
    file = DirectFile(path)
    return _File(file, _status(file))


def _status(file: DirectFile) -> tuple[int, int]:
    status = file.status()
    return status.st_size, status.st_mtime_ns


def _unreadable(path: Path, fault: BaseException) -> EngineError:
    """Why a layer could not be read; EOFError: the file is not the one that was loaded."""
    if isinstance(fault, EOFError):
        return ModelFileError(
            f"The file {path.name} has changed since the model was loaded.",
            "Load the model again.",
            Fault(FaultKind.UNREADABLE, "it has changed since the model was loaded"),
        )
    reason = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
    return ModelFileError(
        f"A layer of the model cannot be read from {path.name}: {reason}.",
        "Check the disk that it lies on, then load the model again.",
        Fault(FaultKind.UNREADABLE, reason),
    )
