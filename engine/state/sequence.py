"""Sequence: the token ids of one text and the pages that hold what the model remembers of them.

The conversation in the window, each of several answers to one prompt, a client of the server and a
draft model are all sequences. Full pages are shared between sequences with a common prefix; a
shared page is copied before it is written, which happens at most once, to the last page.

States of fixed size, of recurrent layers, are never changed in place: a pass writes pages that
follow the current one, and `commit` lets the last of them take its place. So a shared state needs
no copy, and a cancelled pass changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens
from operator import mul

from engine.state.pages import Page, PagePool, bytes_for
from kernels.ops import Segment
from kernels.states.kv_pages import PAGE_TOKENS, PageTable
from kernels.states.layer_state import AT_END, needed_pages

# The longest prefix of some tokens, at most so long, that ends where a text may be cut.
Fits = Callable[[Tokens[int], int], int]

_STATES = 2  # of fixed size that a sequence keeps: the current one and that of a boundary before


class Sequence:
    """Tokens with their KV pages; changed by `commit` and `rewind`, and freed by `release`."""

    def __init__(self, pool: PagePool, context: int, fits: Fits | None = None) -> None:
        """An empty sequence of at most `context` tokens; `fits` says where a text may be cut."""
        self.context = context
        self._fits = fits
        self.tokens: list[int] = []  # with keys and values in the pages
        # `reserve` needs not be called up to this length: pages are there, and of this sequence
        # alone. States of fixed size need a page for every pass: always 0 with these.
        self.reserved = 0
        # Of a text with images: length, and how far they move RoPE positions; None: not known.
        self.moved: tuple[int, int] | None = None
        self._pool = pool
        self._pages: list[list[Page | None]] = [[] for _ in range(pool.layout.groups)]
        self._tables = tuple(PageTable() for _ in range(pool.layout.groups))
        windows = pool.layout.windows
        self._has_states = AT_END in windows
        self._slides = any(window > 0 for window in windows)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def pages(self) -> list[tuple[Page | None, ...]]:
        """The pages of each block of 256 positions, one for each group of layers.

        Others may refer to them from now on.
        """
        self.reserved = 0
        count = -(-len(self.tokens) // PAGE_TOKENS)
        return list(zip(*(pages[:count] for pages in self._pages), strict=True))

    def bytes_to_append(self, tokens: int) -> int:
        """Bytes of the pages that must be allocated at once for so many more tokens, at most."""
        layout, length = self._pool.layout, len(self.tokens)
        held = [sum(page is not None for page in pages) for pages in self._pages]
        total = bytes_for(layout, length + tokens)
        return max(total - sum(map(mul, held, layout.page_bytes)), 0)

    def missing_bytes(self, tokens: int) -> int:
        """Bytes that `reserve` takes from the pool for so many tokens: new pages and copies."""
        layout, first = self._pool.layout, len(self.tokens) // PAGE_TOKENS
        total = 0
        for group, pages in enumerate(self._pages):
            count = max(self._pages_for(group, tokens) - len(pages), 0)
            if layout.windows[group] != AT_END:
                count += sum(page is not None and page.references > 1 for page in pages[first:])
            total += count * layout.page_bytes[group]
        return total

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` after the committed ones, in pages of this sequence alone.

        Call it before a pass beyond `reserved`. States of fixed size before the last page boundary are dropped.
        Raises OutOfPages or MemoryError: it then has the pages of its committed tokens alone.
        """
        length = len(self.tokens)
        assert length + tokens <= self.context, f"{length} + {tokens} tokens in {self.context}"
        try:
            self._reserve(length, tokens)
        except BaseException:
            self._truncate(-(-length // PAGE_TOKENS))  # groups may have got unequal numbers
            raise
        if not self._has_states:
            pages = -(-(length + tokens) // PAGE_TOKENS)
            self.reserved = min(pages * PAGE_TOKENS, self.context)

    def segment(self, tokens: Tokens[int]) -> Segment:
        """These tokens after the committed ones, as part of a batch; call `reserve` before."""
        return Segment(tokens, len(self.tokens), self._tables)

    def commit(self, tokens: Tokens[int]) -> None:
        """Append the tokens of a segment, whose pass has written keys, values and states."""
        if self._has_states:
            self._drop_states(tokens)
        self.tokens += tokens
        if self._slides:
            self._drop_outside_windows()

    def _drop_states(self, tokens: Tokens[int]) -> None:
        """The states before a pass, whose place those behind it take."""
        current, inside = divmod(len(self.tokens), PAGE_TOKENS)
        for group, window in enumerate(self._pool.layout.windows):
            if window == AT_END and inside and tokens:
                page = self._pages[group].pop(current)
                self._tables[group].remove(current)
                assert page is not None, "the state before a pass is missing"
                self._pool.release(page)

    def commit_accepted(self, tokens: Tokens[int], processed: int) -> None:
        """Append the first tokens of a segment of `processed` tokens; the others were rejected.

        The next pass overwrites their keys and values. A state of fixed size is known after the
        whole segment only: with rejected tokens nothing is appended where layers have one, and the
        caller processes the accepted ones once again.
        """
        if len(tokens) == processed or AT_END not in self._pool.layout.windows:
            self.commit(tokens)
        else:
            self._truncate(-(-len(self.tokens) // PAGE_TOKENS))

    def rewind(self, length: int) -> int:
        """Drop the tokens from position `length` on; returns the length reached.

        That is less where a sliding window needs pages that were dropped, inside the span of an
        image, and for states of fixed size, of which there is the current one and perhaps that of
        the page boundary before it.
        The caller processes the tokens from there on again.
        """
        assert 0 <= length <= len(self.tokens), f"rewind to {length} of {len(self.tokens)}"
        while length:
            if not self._is_complete(length):
                length = (length - 1) // PAGE_TOKENS * PAGE_TOKENS
            elif self._fits is not None and (found := self._fits(self.tokens, length)) < length:
                length = found
            else:
                break
        self.moved = None
        del self.tokens[length:]
        self._truncate(-(-length // PAGE_TOKENS))
        return length

    def fork(self) -> Sequence:
        """A sequence with the same tokens, which shares the pages."""
        return Sequence(self._pool, self.context, self._fits).adopt(self.tokens, self.pages)

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
        self.reserved = 0
        for group, page in enumerate(pages):
            mine = self._pages[group][index]
            if page is not None and mine is not None and mine is not page:
                self._set(group, index, self._pool.retain(page))

    def release(self) -> None:
        """Drop all tokens and pages; the sequence is then empty."""
        self.tokens, self.moved = [], None
        self._truncate(0)

    def _reserve(self, length: int, tokens: int) -> None:
        for group, window in enumerate(self._pool.layout.windows):
            pages = self._pages[group]
            if window == AT_END:
                self._drop(group, -(-length // PAGE_TOKENS) - _STATES)
            else:
                for index in range(length // PAGE_TOKENS, len(pages)):
                    self._own(group, index)
            while len(pages) < self._pages_for(group, tokens):
                page = self._pool.take(group)
                pages.append(page)
                self._tables[group].append(page.data)

    def _pages_for(self, group: int, tokens: int) -> int:
        """Pages of a group during a pass over so many more tokens."""
        length = len(self.tokens)
        count = -(-(length + tokens) // PAGE_TOKENS)
        # A pass that begins inside a page writes its state beside the current one.
        is_beside = self._pool.layout.windows[group] == AT_END and length % PAGE_TOKENS > 0
        return count + is_beside

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
        self.reserved = 0
        for pages, table in zip(self._pages, self._tables, strict=True):
            for page in pages[count:]:
                if page is not None:
                    self._pool.release(page)
            del pages[count:]
            table.truncate(count)

    def _is_complete(self, length: int) -> bool:
        """Whether all that the token at position `length` needs is present."""
        for window, pages in zip(self._pool.layout.windows, self._pages, strict=True):
            if window == AT_END and length % PAGE_TOKENS and length != len(self.tokens):
                return False  # the last page has the state after a later token
            if any(pages[index] is None for index in needed_pages(window, length)):
                return False
        return True

    def _drop_outside_windows(self) -> None:
        """Release the pages that no later token sees: windows slide, and only forward."""
        for group, window in enumerate(self._pool.layout.windows):
            if window > 0:
                self._drop(group, needed_pages(window, len(self.tokens)).start)

    def _drop(self, group: int, end: int) -> None:
        """Release the pages before index `end`."""
        for index in range(min(end, len(self._pages[group])) - 1, -1, -1):
            if self._pages[group][index] is None:
                break
            self._set(group, index, None)
