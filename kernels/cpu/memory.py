"""Memory in huge pages, for data that is read once a token: weights, keys and values.

Pages of 2 MiB make reading that much a third faster, where the system has them to give.
"""

from __future__ import annotations

import ctypes
import weakref

import torch
from torch import Tensor

from kernels.cpu import library

HUGE_PAGE = 1 << 21


def allocated(size: int) -> ctypes.Array[ctypes.c_uint8]:
    """Zeroed memory in huge pages if available, freed when the array is no longer referenced.

    Raises MemoryError.
    """
    native = library.native()
    address = native.nk_huge_alloc(size)
    if not address:
        raise MemoryError(f"The system refused {size:,} bytes.")
    array = (ctypes.c_uint8 * size).from_address(address)
    # Not at exit: threads may still read it then, and the system takes it back anyway.
    weakref.finalize(array, native.nk_huge_free, address, size).atexit = False
    return array


def memory(size: int) -> Tensor:
    """A tensor uint8 of `size`; too small a one for a huge page comes from the heap."""
    if size < HUGE_PAGE:
        return torch.empty(size, dtype=torch.uint8)
    return torch.frombuffer(allocated(size), dtype=torch.uint8)
