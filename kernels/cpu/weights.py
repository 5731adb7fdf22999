"""Packing of weights for the native kernels: into huge-page memory, on all threads.

A decode step is bound by reading a few hundred megabytes of weights, and pages of 2 MiB make that a
third faster. Small tensors share one allocation rather than take a page each; it is freed with the
last tensor in it.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.cpu import library
from kernels.cpu.memory import allocated
from kernels.cpu.schema import NativeWeight
from kernels.weights.formats import Format
from kernels.weights.weight import Weight

LAYOUT = "cpu"  # layout name of weights packed here

_PAGE = 2 << 20  # bytes
_LINE = 64  # bytes: a cache line
_SHARED = 32 << 20  # bytes of an allocation shared by small tensors
_LARGE = 8 << 20  # bytes from which a tensor gets a separate allocation
_PIECE = 2 << 20  # bytes of a file packed between two calls of the checkpoint: a few ms


def prepare(
    weight: Weight,
    checkpoint: Callable[[], None] = lambda: None,
    done: Callable[[int, int], None] = lambda first, end: None,
) -> Weight:
    """Pack a weight; its file can then be closed. See `Backend.prepare`.

    `checkpoint` is called on the caller's thread every few milliseconds; an exception from it
    cancels the packing. A vector is decoded to float32; a packed weight is returned unchanged.
    """
    if is_packed(weight):
        return weight
    if len(weight.shape) == 1:
        return reference.prepare(weight, checkpoint, done)
    source = weight.data
    size = _packed_bytes(weight.format, weight.shape)
    data = _memory.take(size)
    format, rows, columns = weight.format.id, source.shape[0], weight.columns
    address, packed = library.pointer(source, source.dtype), data.data_ptr()

    def pack(first: int, end: int) -> None:
        library.call("pack", format, address, rows, columns, first, end, packed)
        done(first, end)

    _pack_pieces(pack, _pieces(weight), checkpoint)
    return Weight(data, weight.format, weight.shape, LAYOUT)


def empty(format: Format, shape: Sequence[int], memory: Tensor) -> Weight:
    """A packed weight over the beginning of `memory` u8; `fill` writes its rows."""
    size = _packed_bytes(format, shape)
    assert size <= memory.numel(), (format.name, shape)
    return Weight(memory[:size], format, tuple(shape), LAYOUT)


def fill(weight: Weight, first: int, end: int, rows: Tensor) -> None:
    """Pack rows u8, as in a file, into the rows from `first` to before `end` of a weight."""
    count, columns = math.prod(weight.shape[:-1]), weight.columns
    assert rows.numel() == (end - first) * weight.format.row_bytes(columns), rows.shape
    # The address of row 0, from which the call counts; only the given rows are read.
    address = rows.data_ptr() - first * weight.format.row_bytes(columns)
    packed = weight.data.data_ptr()
    library.call("pack", weight.format.id, address, count, columns, first, end, packed)


def group_rows(format: Format) -> int:
    """Rows that are packed together."""
    return library.native().nk_group_rows(format.id)


def is_packed(weight: Weight) -> bool:
    """Whether native code can read this weight."""
    return weight.layout == LAYOUT


def held_bytes(format: Format, shape: Sequence[int]) -> int:
    """Bytes that `prepare` allocates for a weight."""
    if len(shape) == 1:
        return 4 * shape[0]
    return _padded(_packed_bytes(format, shape))


def native(weight: Weight) -> NativeWeight:
    """The C struct of a packed weight; valid while `weight` is alive."""
    assert is_packed(weight)
    rows = math.prod(weight.shape[:-1])
    return NativeWeight(weight.data.data_ptr(), weight.format.id, rows, weight.columns)


def _packed_bytes(format: Format, shape: Sequence[int]) -> int:
    format.row_bytes(shape[-1])  # raises ValueError unless columns fill whole blocks
    size = library.native().nk_packed_bytes(format.id, math.prod(shape[:-1]), shape[-1])
    assert size > 0, (format.name, shape)
    return size


def _pieces(weight: Weight) -> Iterator[tuple[int, int]]:
    """Row ranges to pack, whole groups of about 2 MiB each."""
    rows = weight.data.shape[0]
    group = group_rows(weight.format)
    row_bytes = weight.size_bytes // rows
    step = max(_PIECE // (group * row_bytes), 1) * group
    return ((first, min(first + step, rows)) for first in range(0, rows, step))


def _pack_pieces(
    work: Callable[[int, int], None],
    pieces: Iterator[tuple[int, int]],
    checkpoint: Callable[[], None],
) -> None:
    """Pack all pieces on the library's number of threads; this thread calls `checkpoint`."""
    waiting = deque(pieces)  # shared by all threads: deque operations are atomic

    def drain() -> None:
        while piece := _next(waiting):
            work(*piece)

    helpers = min(library.threads(), len(waiting)) - 1
    with ThreadPoolExecutor(max(helpers, 1), "packing") as pool:
        others = [pool.submit(drain) for _ in range(helpers)]
        try:
            checkpoint()
            while piece := _next(waiting):
                work(*piece)
                checkpoint()
        finally:
            waiting.clear()
    for other in others:
        other.result()


def _next(waiting: deque[tuple[int, int]]) -> tuple[int, int] | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


# --- memory -------------------------------------------------------------------------------------


class _Memory:
    """Allocates memory for tensors; small ones share allocations, which their last tensor frees."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: weakref.ref[ctypes.Array[ctypes.c_uint8]] | None = None
        self._used = 0  # bytes used of the shared allocation

    def take(self, size: int) -> Tensor:
        """A uint8 tensor of `size` bytes, padded to whole cache lines or pages."""
        padded = _padded(size)
        if padded >= _LARGE:
            return torch.frombuffer(allocated(padded), dtype=torch.uint8)
        with self._lock:
            shared = self._shared() if self._shared else None
            if shared is None or self._used + padded > _SHARED:
                shared, self._used = allocated(_SHARED), 0
                self._shared = weakref.ref(shared)
            # Every tensor references the array, whose finalizer frees the memory.
            taken = torch.frombuffer(shared, dtype=torch.uint8, count=padded, offset=self._used)
            self._used += padded
        return taken


_memory = _Memory()


def _padded(size: int) -> int:
    """`size` rounded up to whole cache lines, or to whole pages."""
    step = _LINE if size < _LARGE else _PAGE
    return -(-size // step) * step
