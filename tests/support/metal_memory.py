"""Memory for tensors of a fake Metal launch: access beyond the end of a tensor is a fault.

A tensor is copied so that it ends where a page without access begins, 16-byte aligned at its start;
the bytes around it that can be accessed must not change. Afterwards the bytes that a kernel has
changed are copied back, so that a tensor may be given twice.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_PAGE = mmap.PAGESIZE
_GUARD = 1 << 20  # bytes
_ALIGNMENT = 16
_POISON = 0xA5
_LARGEST = 16 << 20  # bytes; larger tensors are not copied

Bytes = NDArray[np.uint8]

_LIBC = ctypes.CDLL(None, use_errno=True)


class _Slot:
    """Pages for one argument, between pages without access."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // _PAGE) * _PAGE
        self._memory = mmap.mmap(-1, self.size + 2 * _GUARD)
        whole: Bytes = np.frombuffer(self._memory, dtype=np.uint8)
        self.bytes = whole[_GUARD : _GUARD + self.size]
        self.address = self.bytes.ctypes.data
        for start in (self.address - _GUARD, self.address + self.size):
            if _LIBC.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(_GUARD), 0):
                raise OSError(ctypes.get_errno(), "mprotect")


class GuardedArguments:
    """The tensors of one launch at a time; slots are kept for the next."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        # Of this launch, by address and size: the tensor's bytes, their copy, what it was, around.
        self._placed: dict[tuple[int, int], tuple[Bytes, Bytes, Bytes, Bytes]] = {}

    def place(self, tensor: Tensor) -> int:
        """The address of a copy of a tensor, of all bytes from its first to its last element."""
        size = _span(tensor)
        if size > _LARGEST:
            return tensor.data_ptr()
        key = tensor.data_ptr(), size
        if key not in self._placed:
            slot = self._slot(len(self._placed), size)
            start = (slot.size - size) // _ALIGNMENT * _ALIGNMENT
            first = max(start - _PAGE, 0)
            slot.bytes[first : slot.size] = _POISON
            original = np.empty(0, np.uint8)
            if size:
                memory = (ctypes.c_uint8 * size).from_address(key[0])
                original = np.ctypeslib.as_array(memory)
            copy = slot.bytes[start : start + size]
            copy[:] = original
            around = np.concatenate((slot.bytes[first:start], slot.bytes[start + size : slot.size]))
            self._placed[key] = original, copy, original.copy(), around
        original, copy, _, _ = self._placed[key]
        return copy.ctypes.data

    def collect(self) -> bool:
        """Copy back what the launch has changed; whether only bytes of tensors were."""
        clean = True
        for index, (original, copy, before, around) in enumerate(self._placed.values()):
            changed = copy != before
            original[changed] = copy[changed]
            slot = self._slots[index]
            start = copy.ctypes.data - slot.address
            first = max(start - _PAGE, 0)
            now = np.concatenate(
                (slot.bytes[first:start], slot.bytes[start + len(copy) : slot.size])
            )
            clean = clean and bool(np.array_equal(now, around))
        self.forget()
        return clean

    def forget(self) -> None:
        """Drop the tensors of a launch that failed."""
        self._placed = {}

    def _slot(self, index: int, size: int) -> _Slot:
        if index == len(self._slots):
            self._slots.append(_Slot(size))
        elif self._slots[index].size < size:
            self._slots[index] = _Slot(2 * size)
        return self._slots[index]


def _span(tensor: Tensor) -> int:
    """Bytes from the first element of a tensor to the end of its last."""
    if not tensor.numel():
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.element_size()
