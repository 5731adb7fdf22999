"""Memory of huge pages: aligned, zeroed, refused where it cannot be, and given back when freed."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from kernels.cpu import library

pytestmark = pytest.mark.skipif(not library.available(), reason=library.reason())

HUGE_PAGE = 2 << 20  # bytes
# Windows has huge pages only for who holds a privilege, so its memory is not aligned to them.
ALIGNED = 64 if sys.platform == "win32" else HUGE_PAGE
STATM = Path("/proc/self/statm")
SIZES = (1, 63, 4096, 4097, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE + 12345)


@pytest.mark.parametrize("size", SIZES)
def test_memory_is_aligned_zeroed_and_writable_to_its_end(size: int) -> None:
    native = library.native()
    for _ in range(2):  # what was freed must not come back as it was
        address = native.nk_huge_alloc(size)
        assert address
        assert address % (ALIGNED if size >= HUGE_PAGE else 64) == 0
        array = (ctypes.c_uint8 * size).from_address(address)
        assert not any(bytes(array))
        ctypes.memset(address, 0xFF, size)
        native.nk_huge_free(address, size)


@pytest.mark.parametrize("size", [0, -1, -(1 << 62), (1 << 62) + 1, (1 << 63) - 1])
def test_sizes_that_cannot_be_get_no_memory(size: int) -> None:
    native = library.native()
    assert native.nk_huge_alloc(size) is None
    native.nk_huge_free(None, size)  # nothing to free, whatever the size
    with pytest.raises(MemoryError, match="refused"):
        library.read_bandwidth(size, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is resident so simply")
def test_freed_memory_is_no_longer_resident() -> None:
    native, size = library.native(), 64 << 20
    before = resident()
    address = native.nk_huge_alloc(size)
    ctypes.memset(address, 1, size)
    assert resident() - before > size // 2
    native.nk_huge_free(address, size)
    assert resident() - before < size // 2


def resident() -> int:
    return int(STATM.read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("size", [1, 1000, HUGE_PAGE, 5 * HUGE_PAGE + 77])
def test_reading_speed_is_measured_on_any_size(size: int) -> None:
    assert library.read_bandwidth(size, 2) > 0
