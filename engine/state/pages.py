"""Page pool: reference-counted KV pages of one model, within a memory budget.

A page is shared by every sequence and every prefix tree node that refers to it, and is read-only
while more than one does. Pages never move: a recorded program or a saver thread may hold their
addresses as long as it holds a reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.machine.device import trim_heap
from engine.messages import CacheType
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout
from kernels.states.layer_state import AT_END

# States of fixed size of one sequence during a pass: the current one, that of the page boundary
# before it, and three that a pass over 512 tokens writes when it begins inside a page.
STATE_PAGES = 5

Memory = Callable[[int], Tensor]  # from a size in bytes

_DTYPES = {
    CacheType.F32: torch.float32,
    CacheType.F16: torch.float16,
    CacheType.Q8_0: torch.int8,
}


class OutOfPages(Exception):
    """The budget is used up: evict cached pages, or wait until a sequence ends."""


class Page:
    """256 positions of the layers of one group, or the state after the last one of them."""

    __slots__ = ("data", "group", "is_lent", "references")

    def __init__(self, group: int, data: Tensor) -> None:
        self.group = group
        self.data = data  # uint8 [page_bytes]
        self.references = 1
        self.is_lent = False  # evicted and being written to disk: not part of the budget


def storage_dtype(type: CacheType) -> torch.dtype:
    """The dtype in which keys and values are stored."""
    return _DTYPES[type]


class PagePool:
    """Allocates, shares and frees pages; may be used by several threads."""

    def __init__(
        self,
        layout: KVLayout,
        memory: Memory | Mapping[str, Memory] | None = None,
        budget_bytes: int = 1 << 62,
    ) -> None:
        """`memory` allocates uint8 tensors: one function for all, or one for each place of `layout`.

        See `Backend.memory` and `Placement.memories`. None: torch's allocator for the processor.
        """
        self.layout = layout
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.most_lent_bytes = 0  # beside the budget, of pages that are evicted and being written
        self.lent_bytes = 0
        self._memory = [  # of each group
            memory[place] if isinstance(memory, Mapping) else memory or _heap
            for place in layout.places
        ]
        self._free: list[list[Tensor]] = [[] for _ in layout.page_bytes]
        self._lock = threading.Lock()

    @property
    def allocated_bytes(self) -> int:
        """Memory of used, lent and spare pages."""
        spare = zip(self._free, self.layout.page_bytes, strict=True)
        return self.used_bytes + self.lent_bytes + sum(len(pages) * size for pages, size in spare)

    @property
    def used_pages(self) -> int:
        """Number of 256-position blocks in use, if every group were in use alike."""
        return -(-self.used_bytes // self.layout.bytes_per_page)

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many bytes more are within the budget."""
        return self.used_bytes + size_bytes <= self.budget_bytes

    def take(self, group: int) -> Page:
        """A page of zeros with one reference; raises OutOfPages or MemoryError.

        Zeros, because the rows of a page that are not in use yet are saved with it. A page of
        states of fixed size is undefined: a pass writes all of it.
        """
        page = self.take_undefined(group)
        if self.layout.windows[group] != AT_END:
            page.data.zero_()
        return page

    def copy(self, page: Page) -> Page:
        """A new page with the same contents."""
        made = self.take_undefined(page.group)
        made.data.copy_(page.data)
        return made

    def take_undefined(self, group: int) -> Page:
        """A page with undefined contents, all of which the caller writes; raises as `take` does."""
        size = self.layout.page_bytes[group]
        with self._lock:
            if not self.has_room(size):
                raise OutOfPages
            self.used_bytes += size
            spare = self._free[group]
            data = spare.pop() if spare else None
            if data is None:
                self._drop_spare()
        try:
            # Not an inference tensor: pages are also written outside of inference mode.
            with torch.inference_mode(False):
                return Page(group, self._memory[group](size) if data is None else data)
        except BaseException:
            with self._lock:
                self.used_bytes -= size
            raise

    def _drop_spare(self) -> None:
        """Free spare pages of any group while more than the budget is allocated."""
        for pages in self._free:
            while pages and self.allocated_bytes > self.budget_bytes + self.most_lent_bytes:
                pages.pop()

    def retain(self, page: Page) -> Page:
        """Add a reference."""
        with self._lock:
            assert page.references > 0, "a page was used after it was freed"
            page.references += 1
        return page

    def release(self, page: Page) -> None:
        """Drop a reference; the last one makes the page available again."""
        with self._lock:
            assert page.references > 0, "a page was freed twice"
            page.references -= 1
            if page.references == 0:
                size = self.layout.page_bytes[page.group]
                if page.is_lent:
                    self.lent_bytes -= size
                else:
                    self.used_bytes -= size
                self._free[page.group].append(page.data)

    def lend(self, pages: Sequence[Page]) -> bool:
        """Add a reference to pages that are being evicted, for a writer; their room is free now.

        False, and nothing is changed, when more than `most_lent_bytes` would be lent. The pages
        have one reference, that of whoever evicts them, and nobody may add another one afterwards.
        """
        size = sum(self.layout.page_bytes[page.group] for page in pages)
        with self._lock:
            if self.lent_bytes + size > self.most_lent_bytes:
                return False
            for page in pages:
                assert page.references == 1, "a page is evicted that others use"
                page.references = 2
                page.is_lent = True
            self.lent_bytes += size
            self.used_bytes -= size
        return True

    def trim(self) -> None:
        """Return the memory of spare pages to the system."""
        with self._lock:
            self._free = [[] for _ in self.layout.page_bytes]
        trim_heap()


def bytes_for(layout: KVLayout, tokens: int) -> int:
    """Bytes of the pages for so many positions of one sequence, in all groups, during a pass."""
    total = 0
    for window, size in zip(layout.windows, layout.page_bytes, strict=True):
        pages = -(-tokens // PAGE_TOKENS)
        if window == AT_END:
            pages = min(pages + 1, STATE_PAGES) if tokens else 0
        elif window:
            pages = min(pages, -(-window // PAGE_TOKENS) + 2)
        total += pages * size
    return total


def _heap(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)
