"""Mapped file: one that is cut while it is read ends no process.

Reading a mapped page that its file does not have any more, or that its disk cannot read, ends the
process with SIGBUS. The native library guards the mapping: the page reads as zeros, and `was_cut`
says so afterwards. Windows refuses to cut a mapped file. Without the library there is no guard.
"""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from typing import Self

import numpy as np

from kernels.cpu import library


class MappedFile(mmap):
    """A whole file in memory, read-only."""

    _number = -1  # of its guard

    def __new__(cls, fileno: int) -> Self:
        """Raises OSError, and ValueError for an empty file."""
        made = super().__new__(cls, fileno, 0, access=ACCESS_READ)
        if library.available():
            address = np.frombuffer(made, dtype=np.uint8).__array_interface__["data"][0]
            made._number = library.native().nk_guard(address, len(made))
        return made

    @property
    def was_cut(self) -> bool:
        """Whether something read a page that the file does not have."""
        return self._number >= 0 and bool(library.native().nk_was_cut(self._number))

    def close(self) -> None:
        """Unmap the file. Raises BufferError if views of it are alive: it is unmapped with these."""
        super().close()
        self._release()

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        if self._number >= 0:
            library.native().nk_unguard(self._number)
            self._number = -1
