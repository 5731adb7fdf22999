"""Pages for store tests: their bytes are a function of the key and all tokens up to their end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine import snapshots_folder
from engine.state.disk.page_file import PAGE_TOKENS, StateKey
from engine.state.disk.sequence_file import SavedSequence
from engine.state.disk.store import PageRead, PageStore, SaveResult, needed_parts

KEY = StateKey("a" * 64, "", "f16", (1000,))
PLENTY = 1 << 40


def contents(key: StateKey, tokens: Sequence[int], page: int, group: int) -> bytes:
    """The bytes that a page of a sequence must have, from the definition of its contents."""
    seen = list(tokens[: (page + 1) * PAGE_TOKENS])
    seed = hashlib.sha256(repr((key, seen, group)).encode()).digest()
    return random.Random(seed).randbytes(key.page_bytes[group])


@dataclass
class MemoryPage:
    """A page in memory; records how it is used."""

    key: StateKey
    tokens: Sequence[int]
    page: int
    held: tuple[bool, ...]
    read: int = 0
    released: int = 0

    def parts(self) -> list[memoryview | None]:
        assert not self.released
        self.read += 1
        return [
            memoryview(contents(self.key, self.tokens, self.page, group)) if held else None
            for group, held in enumerate(self.held)
        ]

    def release(self) -> None:
        self.released += 1


def memory_pages(
    tokens: Sequence[int], key: StateKey = KEY, windows: Sequence[int] = ()
) -> list[MemoryPage]:
    """The pages of a sequence, of which a group with a window holds only the last."""
    needed = needed_parts(windows or (0,) * len(key.page_bytes), len(tokens))
    return [MemoryPage(key, tokens, page, held) for page, held in enumerate(needed)]


@dataclass
class Saves:
    """Saves sequences of made-up pages in a store."""

    store: PageStore
    key: StateKey = KEY
    windows: Sequence[int] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def save(
        self,
        tokens: Sequence[int],
        conversation: str = "one",
        *,
        key: StateKey | None = None,
        budget: int = PLENTY,
        resume: Mapping[str, str] | None = None,
    ) -> SaveResult:
        """Save; checks that every page is released."""
        key = key or self.key
        pages = memory_pages(tokens, key, self.windows)
        result = self.store.save(
            conversation, key, self.metadata, tokens, pages, resume or {}, budget_bytes=budget
        )
        assert all(page.released for page in pages)
        return result


def find(store: PageStore, result: SaveResult) -> SavedSequence:
    """The sequence of a save."""
    return next(saved for saved in store.sequences() if saved.path == result.path)


def restored(
    store: PageStore, saved: SavedSequence, windows: Sequence[int] = (), limit: int | None = None
) -> int:
    """Restore as much as is usable; every byte is compared. Returns the tokens restored."""
    key, tokens = saved.key, list(saved.tokens)
    windows = windows or (0,) * len(key.page_bytes)
    usable = store.usable_prefix(saved, windows, limit)
    buffers = [
        [
            bytearray(size) if need else None
            for size, need in zip(key.page_bytes, needs, strict=True)
        ]
        for needs in needed_parts(windows, usable)
    ]
    reads = [
        PageRead(page, [None if buffer is None else memoryview(buffer) for buffer in parts])
        for page, parts in zip(saved.pages, buffers, strict=False)
    ]
    good, error = store.read_pages(reads)
    assert (good == len(reads)) == (error is None)
    for page, parts in enumerate(buffers[:good]):
        for group, buffer in enumerate(parts):
            assert buffer is None or buffer == contents(key, tokens, page, group), (page, group)
    return min(usable, good * PAGE_TOKENS)


def page_files() -> set[str]:
    return {path.name for path in (snapshots_folder() / "pages").glob("*.page")}


def sequence_files() -> set[str]:
    return {path.name for path in snapshots_folder().glob("*.sequence")}


def words(count: int, *, seed: int = 0, after: tuple[int, ...] | list[int] = ()) -> list[int]:
    """Token ids that differ from those of another seed."""
    return [*after, *(seed * 10_000 + at for at in range(count))]
