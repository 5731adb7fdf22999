"""Slot reader: threads that read matrices from the model's files into slots of memory.

A unit, which is a layer or an expert, is read into a slot in pieces, in the layout of its backend.
What is read next, and into which slot, is decided by `LayerStreamer` and `ExpertStreamer`.

Units are read from the model file itself, and packed on the way: packing is several times as fast
as a disk, so a second copy of the model in the packed layout would gain nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import EngineError, Fault, FaultKind, ModelFileError
from engine.machine.direct_file import DirectFile, ReadBuffer
from kernels.backend.backend import Backend
from kernels.weights.formats import Format
from kernels.weights.weight import Storage, Weight

WORKERS = 2  # threads: one packs while the other reads
PIECE_BYTES = 2 << 20  # read and packed at a time, about 2 ms; more only if one group of rows is
_ALIGNMENT = 64  # bytes, of a matrix in a slot
_POLL_SECONDS = 0.01  # between two looks at a cancellation


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a matrix, and their place in a file of the model."""

    backend: Backend
    weight: Weight
    first: int
    end: int
    file: int
    offset: int
    size_bytes: int


@dataclass(slots=True, eq=False)
class Unit:
    """Matrices that are read into one slot together."""

    weights: list[tuple[Weight, int]] = field(default_factory=list)  # and their places in a slot
    pieces: list[Piece] = field(default_factory=list)
    used: int = 0  # bytes of a slot

    def add(
        self,
        backend: Backend,
        storage: Storage,
        format: Format,
        shape: tuple[int, ...],
        memory: Tensor,
        file: int,
        offset: int,
    ) -> Weight:
        """One more matrix, stored at an offset of one of the files; `memory` is that of a slot."""
        weight = backend.empty(format, shape, memory[self.used :], storage)
        self.weights.append((weight, self.used))
        self.used += slot_size([weight.size_bytes])
        rows, row_bytes = weight.shape[0], format.row_bytes(shape[-1])
        group = 1 if weight.layout == "file" else backend.group_rows(format)
        step = max(PIECE_BYTES // (group * row_bytes), 1) * group
        for first in range(0, rows, step):
            last = min(first + step, rows)
            self.pieces.append(
                Piece(
                    *(backend, weight, first, last),
                    *(file, offset + first * row_bytes, (last - first) * row_bytes),
                )
            )
        return weight


@dataclass(slots=True, eq=False)
class Slot:
    """Memory of one unit at a time."""

    memory: Tensor  # u8
    unit: Unit | None = None  # that it has, whole or in part
    begun: int = 0  # pieces handed to a thread
    done: int = 0
    error: EngineError | None = None  # of reading the unit
    stale: bool = False  # the error is of an earlier pass: read again once no piece is running

    @property
    def running(self) -> int:
        """Pieces that threads are reading."""
        return self.begun - self.done

    def assign(self, unit: Unit | None) -> None:
        """Drop what it has, to be filled with another unit."""
        self.unit, self.begun, self.done, self.error = unit, 0, 0, None
        self.stale = False

    def has(self, unit: Unit) -> bool:
        """Whether all of a unit is in memory."""
        return self.unit is unit and self.done == len(unit.pieces) and self.error is None


@dataclass(frozen=True, slots=True)
class _File:
    """An open file of the model, and its size and modification time when it was opened."""

    file: DirectFile
    status: tuple[int, int]


class SlotReader:
    """Reads units into slots; `request` and `wait` are called by one thread at a time."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises OSError for a file that cannot be opened."""
        self.read_bytes = 0  # so far
        self._files = [_opened(path) for path in paths]
        self._wake = threading.Condition()
        self._wanted: tuple[tuple[Slot, Unit], ...] = ()
        self._failed: list[Slot] = []
        self._threads: list[threading.Thread] = []
        self._closed = False

    def request(self, wanted: Sequence[tuple[Slot, Unit]]) -> None:
        """Read these units, in this order, and no others; what failed before is tried again."""
        with self._wake:
            self._wanted = tuple(wanted)
            failed, self._failed = self._failed, []
            for slot in failed:
                slot.stale = True
                self._reset_stale(slot)
            self._start()
            self._wake.notify_all()

    def wait(self, slot: Slot, unit: Unit, checkpoint: Callable[[], None]) -> None:
        """Wait until a unit that was requested is in its slot. Raises ModelFileError."""
        while True:
            with self._wake:
                error = None if slot.stale else slot.error
                if slot.unit is unit and error is not None:
                    # A new one: its traceback would keep the streamer alive.
                    raise ModelFileError(str(error), error.remedy, error.fault)
                if slot.has(unit):
                    return
                self._wake.wait(_POLL_SECONDS)
            checkpoint()

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

    def _reset_stale(self, slot: Slot) -> None:
        if slot.stale and not slot.running:
            slot.assign(None)

    # --- threads --------------------------------------------------------------------------------

    def _work(self) -> None:
        """Read pieces until the reader is closed."""
        buffer = ReadBuffer(1)
        while (found := self._next()) is not None:
            slot, piece = found
            error: EngineError | None = None
            try:
                if piece.size_bytes > buffer.size:
                    buffer = ReadBuffer(piece.size_bytes)
                self._read(piece, buffer)
            except BaseException as fault:  # noqa: BLE001  `wait` raises it
                error = _unreadable(self._files[piece.file].file.path, fault)
            with self._wake:
                slot.done += 1
                if error is not None and slot.error is None:
                    slot.error = error
                    self._failed.append(slot)
                self._reset_stale(slot)
                self.read_bytes += piece.size_bytes
                self._wake.notify_all()

    def _next(self) -> tuple[Slot, Piece] | None:
        """The next piece to read, once there is one; None when the reader is closed."""
        with self._wake:
            while not self._closed:
                if (found := self._due()) is not None:
                    return found
                self._wake.wait()
        return None

    def _due(self) -> tuple[Slot, Piece] | None:
        """The next piece of the wanted units, in their order."""
        taken: list[Slot] = []
        for slot, unit in self._wanted:
            if slot in taken or not unit.pieces:
                continue  # of a unit that is needed earlier
            taken.append(slot)
            if slot.unit is not unit and not slot.running:
                slot.assign(unit)
            if slot.unit is unit and not slot.error and slot.begun < len(unit.pieces):
                slot.begun += 1
                return slot, unit.pieces[slot.begun - 1]
        return None

    def _read(self, piece: Piece, buffer: ReadBuffer) -> None:
        one = self._files[piece.file]
        rows = one.file.read(piece.offset, piece.size_bytes, buffer)
        if _status(one.file) != one.status:
            raise EOFError
        piece.backend.fill(piece.weight, piece.first, piece.end, torch.from_numpy(rows))


def slot_size(matrices: Sequence[int]) -> int:
    """The memory in a slot of matrices of so many bytes each."""
    return sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in matrices)


def _opened(path: Path) -> _File:
    file = DirectFile(path)
    return _File(file, _status(file))


def _status(file: DirectFile) -> tuple[int, int]:
    status = file.status()
    return status.st_size, status.st_mtime_ns


def _unreadable(path: Path, fault: BaseException) -> EngineError:
    """Why weights could not be read; EOFError: the file is not the one that was loaded."""
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
