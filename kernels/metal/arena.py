"""Memory of KV pages for the Metal backend: many pages in each of a few buffers.

A kernel is given buffers, at most 31, and cannot follow addresses. So pages of one size are places
in up to `CHUNKS` buffers, each larger than the one before, and a page table has the number of a
buffer and the place in it. All buffers together are at most 1.6 times as large as the pages that
were in use at once, and have room for 2,272 pages, which is half a million positions.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.states.kv_pages import PageTable

CHUNKS = 16  # buffers that a kernel is given, as in pages.metal
CHUNK_BITS = 48  # of a table's entry from which on it has the number of a buffer

_GROWTH = 0.6  # places of a new buffer for each one that there is

_LARGEST = 256 << 20  # bytes of a page; larger memory, such as slots of paged weights, is apart
_ALIGNMENT = 256  # bytes


@dataclass(eq=False, slots=True)
class _Chunk:
    """A buffer that is cut in places of one size."""

    memory: weakref.ref[Tensor]  # lives as long as pages in it
    places: int
    free: list[int] = field(default_factory=list[int])


class Arena:
    """Allocates memory of pages; may be used by several threads."""

    def __init__(self, allocate: Callable[[int], Tensor]) -> None:
        """`allocate` makes buffers u8, and raises MemoryError where it cannot."""
        self._allocate = allocate
        self._chunks: dict[int, list[_Chunk]] = {}  # by size of a place
        self._lock = threading.RLock()  # a page may be freed while one is taken

    def take(self, size: int) -> Tensor:
        """Memory u8 [size], which is free again when the tensor is."""
        if not 0 < size <= _LARGEST:
            return self._allocate(size)
        stride = -(-size // _ALIGNMENT) * _ALIGNMENT
        # Not an inference tensor: what shares its buffer is written outside of inference mode too.
        with self._lock, torch.inference_mode(False):
            memory, chunk = self._chunk(stride)
            index = chunk.free.pop()
            made = memory[index * stride : index * stride + size]
            # `memory` stays until the last page of the chunk is gone.
            weakref.finalize(made, self._drop, chunk, memory, index).atexit = False
            return made

    def _chunk(self, stride: int) -> tuple[Tensor, _Chunk]:
        """A chunk with a free place, made if there is none."""
        chunks = [one for one in self._chunks.get(stride, ()) if one.memory() is not None]
        self._chunks[stride] = chunks
        for one in chunks:
            memory = one.memory()
            if one.free and memory is not None:
                return memory, one
        places = max(math.ceil(_GROWTH * sum(one.places for one in chunks)), 1)
        while True:
            try:
                memory = self._allocate(places * stride)
                break
            except MemoryError:
                if places == 1:
                    raise
                places //= 2
        made = _Chunk(weakref.ref(memory), places, list(range(places))[::-1])
        chunks.append(made)
        return memory, made

    def _drop(self, chunk: _Chunk, memory: Tensor, index: int) -> None:
        """A page is gone; the last one frees the chunk, whose `memory` the caller refers to."""
        del memory
        with self._lock:
            chunk.free.append(index)


@dataclass(frozen=True, slots=True)
class Places:
    """Page tables of sequences as kernels read them."""

    entries: list[list[int]]  # [B][width]; 0: no page
    chunks: tuple[Tensor, ...]  # `CHUNKS` buffers u8, some of them twice


def places(tables: Sequence[PageTable], width: int) -> Places | None:
    """Where pages are; None: in more buffers than a kernel is given."""
    chunks: dict[int, tuple[int, Tensor]] = {}  # by address of a storage
    entries: list[list[int]] = []
    for table in tables:
        found = [0] * width
        for at, page in enumerate(table.pages):
            if page is None:
                continue
            storage = page.untyped_storage()
            address = storage.data_ptr()
            if address not in chunks:
                whole = page.as_strided((storage.nbytes(),), (1,), 0)
                chunks[address] = len(chunks), whole
            found[at] = chunks[address][0] << CHUNK_BITS | int(page.storage_offset())
        entries.append(found)
    if len(chunks) > CHUNKS:
        return None
    every = [whole for _, whole in chunks.values()] or [torch.empty(1, dtype=torch.uint8)]
    return Places(entries, tuple(every + every[:1] * (CHUNKS - len(every))))


def copied(table: PageTable) -> PageTable:
    """The same pages in one buffer, to be read."""
    made = PageTable()
    held = [page for page in table.pages if page is not None]
    rows = iter(torch.stack(held) if held else ())
    for page in table.pages:
        made.append(None if page is None else next(rows))
    return made
