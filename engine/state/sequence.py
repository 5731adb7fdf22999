"""Sequence: the token ids of one text and the KV pages that hold their keys and values.

The conversation in the window, each of several answers to one prompt, a client of the server and a
draft model are all sequences. Full pages are shared between sequences with a common prefix; a
shared page is copied before it is written, which happens at most once, to the last page.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from engine.state.pages import Page, PagePool
from kernels.kv_pages import PAGE_TOKENS, PageTable
from kernels.program import Segment


class Sequence:
    """Tokens with their KV pages; changed by `commit` and `trim`, and freed by `release`."""

    def __init__(self, pool: PagePool, context: int) -> None:
        """An empty sequence of at most `context` tokens."""
        self.context = context
        self.tokens: list[int] = []  # with keys and values in the pages
        self._pool = pool
        self._pages: list[list[Page | None]] = [[] for _ in range(pool.layout.groups)]
        self._tables = tuple(PageTable() for _ in range(pool.layout.groups))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def pages(self) -> list[tuple[Page | None, ...]]:
        """The pages of each block of 256 positions, one for each group of layers."""
        return list(zip(*self._pages, strict=True))

    def blocks(self, tokens: int) -> int:
        """Number of pages of one group that this many more tokens need to allocate."""
        wanted = -(-(len(self.tokens) + tokens) // PAGE_TOKENS)
        return max(wanted - len(self._pages[0]), 0)

    def missing_bytes(self, tokens: int) -> int:
        """Bytes that `reserve` takes from the pool for so many tokens: new pages and copies."""
        first, blocks = len(self.tokens) // PAGE_TOKENS, self.blocks(tokens)
        total = 0
        for pages, size in zip(self._pages, self._pool.layout.page_bytes, strict=True):
            shared = sum(page is not None and page.references > 1 for page in pages[first:])
            total += (blocks + shared) * size
        return total

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` after the committed ones, in pages of this sequence alone.

        Raises OutOfPages or MemoryError: it then has the pages of its committed tokens alone.
        """
        length = len(self.tokens)
        assert length + tokens <= self.context, f"{length} + {tokens} tokens in {self.context}"
        try:
            self._reserve(length, tokens)
        except BaseException:
            self._truncate(-(-length // PAGE_TOKENS))  # groups may have got unequal numbers
            raise

    def segment(self, tokens: Tokens[int]) -> Segment:
        """These tokens after the committed ones, as part of a batch; call `reserve` before."""
        return Segment(tokens, len(self.tokens), self._tables)

    def commit(self, tokens: Tokens[int]) -> None:
        """Append the tokens of a segment, whose pass has written their keys and values."""
        self.tokens += tokens
        self._drop_outside_windows()

    def trim(self, length: int) -> int:
        """Drop the tokens from position `length` on; returns the length reached.

        That is less where a sliding window needs pages that were dropped: the caller processes
        the tokens from there on again.
        """
        assert 0 <= length <= len(self.tokens), f"trim to {length} of {len(self.tokens)}"
        while length and not self._is_complete(length):
            length = (length - 1) // PAGE_TOKENS * PAGE_TOKENS
        del self.tokens[length:]
        self._truncate(-(-length // PAGE_TOKENS))
        return length

    def fork(self) -> Sequence:
        """A sequence with the same tokens, which shares the pages."""
        return Sequence(self._pool, self.context).adopt(self.tokens, self.pages)

    def adopt(self, tokens: Tokens[int], pages: Tokens[tuple[Page | None, ...]]) -> Sequence:
        """Replace the contents by tokens whose keys and values are in these pages; returns self."""
        assert len(pages) == -(-len(tokens) // PAGE_TOKENS), "pages do not match the tokens"
        kept = [
            tuple(None if one is None else self._pool.retain(one) for one in all_) for all_ in pages
        ]
        self.release()
        self.tokens = list(tokens)
        for parts in kept:
            for group, page in enumerate(parts):
                self._pages[group].append(page)
                self._tables[group].append(None if page is None else page.data)
        self._drop_outside_windows()
        return self

    def share(self, index: int, pages: Tokens[Page | None]) -> None:
        """Replace its pages of one block by others with the same contents, where these exist."""
        for group, page in enumerate(pages):
            mine = self._pages[group][index]
            if page is not None and mine is not None and mine is not page:
                self._set(group, index, self._pool.retain(page))

    def release(self) -> None:
        """Drop all tokens and pages; the sequence is then empty."""
        self.tokens = []
        self._truncate(0)

    def _reserve(self, length: int, tokens: int) -> None:
        for group, pages in enumerate(self._pages):
            first = length // PAGE_TOKENS
            for index in range(first, len(pages)):
                self._own(group, index)
            while len(pages) * PAGE_TOKENS < length + tokens:
                page = self._pool.take(group)
                pages.append(page)
                self._tables[group].append(page.data)

    def _own(self, group: int, index: int) -> None:
        """Copy a page that others refer to."""
        page = self._pages[group][index]
        if page is None or page.references == 1:
            return
        copy = self._pool.copy(page)
        self._set(group, index, copy)

    def _set(self, group: int, index: int, page: Page | None) -> None:
        before = self._pages[group][index]
        self._pages[group][index] = page
        self._tables[group].set(index, None if page is None else page.data)
        if before is not None:
            self._pool.release(before)

    def _truncate(self, count: int) -> None:
        for pages, table in zip(self._pages, self._tables, strict=True):
            for page in pages[count:]:
                if page is not None:
                    self._pool.release(page)
            del pages[count:]
            table.truncate(count)

    def _is_complete(self, length: int) -> bool:
        """Whether the pages that the token at position `length` sees are all present."""
        for window, pages in zip(self._pool.layout.windows, self._pages, strict=True):
            first = max(length - window + 1, 0) // PAGE_TOKENS if window else 0
            if any(page is None for page in pages[first : -(-length // PAGE_TOKENS)]):
                return False
        return True

    def _drop_outside_windows(self) -> None:
        """Release the pages that no later token sees: windows slide, and only forward."""
        for group, window in enumerate(self._pool.layout.windows):
            if not window:
                continue
            first = max(len(self.tokens) - window + 1, 0) // PAGE_TOKENS
            for index in range(min(first, len(self._pages[group])) - 1, -1, -1):
                if self._pages[group][index] is None:
                    break
                self._set(group, index, None)
