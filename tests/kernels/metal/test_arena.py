"""Memory of KV pages: buffers that grow, places that are used again, tables of their places."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from kernels.metal import arena
from kernels.metal.arena import Arena
from kernels.states.kv_pages import PageTable


class Allocator:
    """Makes buffers, and fails above so many bytes at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.most = 1 << 40

    def __call__(self, size: int) -> Tensor:
        if size > self.most:
            raise MemoryError
        self.sizes.append(size)
        return torch.empty(size, dtype=torch.uint8)


@pytest.fixture
def allocator() -> Allocator:
    return Allocator()


def storages(pages: list[Tensor]) -> int:
    return len({page.untyped_storage().data_ptr() for page in pages})


def test_buffers_grow(allocator: Allocator) -> None:
    taken = Arena(allocator)
    pages = [taken.take(1000) for _ in range(9)]
    assert allocator.sizes == [1024, 1024, 2048, 3072, 5120]
    assert storages(pages) == 5
    for value, page in enumerate(pages):
        page.fill_(value)
    assert all((page == value).all() and len(page) == 1000 for value, page in enumerate(pages))


def test_places_and_buffers_are_freed(allocator: Allocator) -> None:
    taken = Arena(allocator)
    pages = [taken.take(256) for _ in range(4)]
    address = pages[2].data_ptr()
    del pages[2]
    pages.append(taken.take(256))
    assert pages[-1].data_ptr() == address
    assert len(allocator.sizes) == 3
    del pages[:]
    pages = [taken.take(256)]
    assert allocator.sizes == [256, 256, 512, 256]


def test_sizes_and_large_memory_are_apart(allocator: Allocator) -> None:
    taken = Arena(allocator)
    assert storages([taken.take(256), taken.take(512), taken.take((256 << 20) + 1)]) == 3
    assert allocator.sizes[-1] == (256 << 20) + 1
    assert taken.take(0).numel() == 0


def test_pages_are_written_in_any_mode(allocator: Allocator) -> None:
    taken = Arena(allocator)
    with torch.inference_mode():
        pages = [taken.take(256) for _ in range(4)]
    pages.append(taken.take(256))
    assert not any(page.is_inference() for page in pages)


def test_a_page_is_found_where_memory_is_short(allocator: Allocator) -> None:
    taken = Arena(allocator)
    pages = [taken.take(256) for _ in range(4)]
    pages += [taken.take(256) for _ in range(3)]
    allocator.most = 600
    pages.append(taken.take(256))
    assert allocator.sizes == [256, 256, 512, 768, 512]
    pages.append(taken.take(256))
    allocator.most = 0
    with pytest.raises(MemoryError):
        taken.take(256)


def test_a_kernel_is_given_all_buffers(allocator: Allocator) -> None:
    taken = Arena(allocator)
    table = PageTable()
    for _ in range(2272):
        table.append(taken.take(64))
    found = arena.places([table], 2272)
    assert found is not None
    assert len(allocator.sizes) == arena.CHUNKS


def test_several_threads_take_places(allocator: Allocator) -> None:
    taken = Arena(allocator)
    found: list[Tensor] = []
    threads = [
        threading.Thread(target=lambda: found.extend(taken.take(256) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({page.data_ptr() for page in found}) == 200


def test_tables_name_buffers_and_places(allocator: Allocator) -> None:
    taken = Arena(allocator)
    pages = [taken.take(300) for _ in range(4)]
    tables = [PageTable(), PageTable()]
    for page in (pages[0], None, pages[3]):
        tables[0].append(page)
    tables[1].append(pages[2])
    found = arena.places(tables, 4)
    assert found is not None
    assert len(found.chunks) == arena.CHUNKS
    for row, table in zip(found.entries, tables, strict=True):
        for entry, page in zip(row, [*table.pages, None, None, None], strict=False):
            chunk, start = divmod(entry, 1 << arena.CHUNK_BITS)
            assert (
                entry == 0
                if page is None
                else found.chunks[chunk][start:].data_ptr() == page.data_ptr()
            )


def test_pages_of_too_many_buffers_are_copied() -> None:
    table = PageTable()
    table.append(None)
    for value in range(arena.CHUNKS + 1):
        table.append(torch.full((64,), value, dtype=torch.uint8))
    assert arena.places([table], 32) is None
    copied = arena.copied(table)
    assert copied.pages[0] is None
    found = arena.places([copied], 32)
    assert found is not None
    assert found.chunks[0][64 * 5] == 5
