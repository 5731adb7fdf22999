"""Sequence: growth, copy-on-write, forks, windows that drop pages, and trims that need them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import CacheType
from engine.state.pages import OutOfPages, Page, PagePool, storage_dtype
from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, LayerShape
from kv_writing import equal_rows, extend, holds_its_rows, sequence_rows, write
from poisoned_pool import PoisonedPool

WIDE, WINDOWED = LayerShape(2, 16), LayerShape(1, 16, 300)
PLAIN = KVLayout([WIDE, WIDE], torch.float32)
WINDOWS = KVLayout([WINDOWED, WIDE, WINDOWED], torch.float32)
CONTEXT = 4_000


def filled(pool: PagePool, length: int, first: int = 0) -> Sequence:
    """A sequence with tokens that differ from those of another `first`."""
    sequence = Sequence(pool, CONTEXT)
    extend(pool.layout, sequence, [first + at % 50 for at in range(length)])
    return sequence


def present(sequence: Sequence, group: int) -> list[int]:
    """Indices of the pages that were not dropped."""
    return [at for at, pages in enumerate(sequence.pages) if pages[group] is not None]


def page(sequence: Sequence, index: int, group: int = 0) -> Page:
    found = sequence.pages[index][group]
    assert found is not None
    return found


@pytest.mark.parametrize("layout", [PLAIN, WINDOWS])
@pytest.mark.parametrize("length", [1, 255, 256, 257, 1_000])
def test_releasing_a_sequence_frees_all_its_pages(layout: KVLayout, length: int) -> None:
    pool = PoisonedPool(layout)
    sequence = filled(pool, length)
    assert len(sequence.pages) == -(-length // PAGE_TOKENS)
    assert holds_its_rows(layout, sequence)
    sequence.release()
    assert pool.used_bytes == 0
    assert (sequence.tokens, sequence.pages) == ([], [])
    extend(layout, sequence, [4, 5])  # it can be used again
    assert holds_its_rows(layout, sequence)


def test_growth_never_moves_pages() -> None:
    pool, addresses = PagePool(PLAIN), list[int]()
    sequence = Sequence(pool, CONTEXT)
    tables = sequence.segment([]).tables
    for length in range(100, CONTEXT, 100):
        extend(PLAIN, sequence, [length % 90] * 100)
        found = [page(sequence, at).data.data_ptr() for at in range(len(sequence.pages))]
        assert found[: len(addresses)] == addresses
        assert [one.data_ptr() for one in tables[0].pages if one is not None] == found
        addresses = found
    assert len(addresses) == 16


def test_reserve_takes_only_the_pages_that_are_needed() -> None:
    pool = PagePool(PLAIN)
    sequence = filled(pool, 250)
    sizes = [sequence.missing_bytes(count) for count in (0, 6, 7, 262, 263)]
    assert sizes == [blocks * PLAIN.bytes_per_page for blocks in (0, 0, 1, 1, 2)]
    for count, pages in ((6, 1), (7, 2), (6, 2)):
        sequence.reserve(count)
        assert pool.used_pages == pages
        assert len(sequence.pages) == 1  # of the committed tokens
    assert len(sequence) == 250
    sequence.rewind(250)
    assert pool.used_pages == 1


@pytest.mark.parametrize("layout", [PLAIN, WINDOWS])
@pytest.mark.parametrize("length", [0, 200, 256, 700])
@pytest.mark.parametrize("count", [0, 1, 56, 57, 600])
@pytest.mark.parametrize("shared", [False, True])
def test_missing_bytes_are_what_reserve_takes(
    layout: KVLayout, length: int, count: int, shared: bool
) -> None:
    pool = PoisonedPool(layout)
    sequence = filled(pool, length)
    fork = sequence.fork() if shared else None
    missing, used = sequence.missing_bytes(count), pool.used_bytes
    sequence.reserve(count)
    assert pool.used_bytes - used == missing
    assert sequence.missing_bytes(count) == 0
    assert fork is None or holds_its_rows(layout, fork)


def test_a_sequence_never_exceeds_its_context() -> None:
    sequence = Sequence(PagePool(PLAIN), 300)
    extend(PLAIN, sequence, [3] * 300)
    with pytest.raises(AssertionError, match="300 \\+ 1 tokens in 300"):
        sequence.reserve(1)


@pytest.mark.parametrize("type", list(CacheType))
def test_rows_of_an_uncommitted_segment_are_overwritten(type: CacheType) -> None:
    layout = KVLayout([LayerShape(3, 40)], storage_dtype(type))
    one, other = (Sequence(PoisonedPool(layout), 600) for _ in range(2))
    random = torch.Generator().manual_seed(1)
    parts = [torch.randn(count, 3, 40, generator=random) for count in (250, 30, 20)]
    write(layout, one, 0, parts[0], -parts[0])
    one.commit([3] * 250)
    write(layout, one, 0, parts[1], parts[1])  # cancelled: never committed
    write(layout, one, 0, parts[2], -parts[2])
    one.commit([4] * 20)
    write(layout, other, 0, torch.cat([parts[0], parts[2]]), -torch.cat([parts[0], parts[2]]))
    other.commit(one.tokens)
    assert equal_rows(sequence_rows(layout, one), sequence_rows(layout, other))


# --- sharing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [PLAIN, WINDOWS])
@pytest.mark.parametrize("length", [1, 255, 256, 257, 700])
def test_a_fork_copies_its_last_page_before_it_writes(layout: KVLayout, length: int) -> None:
    pool = PoisonedPool(layout)
    sequence = filled(pool, length)
    used = pool.used_bytes
    fork = sequence.fork()
    assert (fork.tokens, pool.used_bytes) == (sequence.tokens, used)
    before = sequence_rows(layout, sequence)
    shared = len(fork.pages)
    last = page(fork, shared - 1, layout.groups - 1)
    extend(layout, fork, [77, 78])
    assert equal_rows(sequence_rows(layout, sequence), before)
    assert holds_its_rows(layout, fork)
    partial = length % PAGE_TOKENS != 0
    assert (page(sequence, shared - 1, layout.groups - 1) is last) is True
    assert (page(fork, shared - 1, layout.groups - 1) is not last) is partial
    assert last.references == (1 if partial else 2)
    extend(layout, sequence, [79])
    assert holds_its_rows(layout, sequence)
    assert holds_its_rows(layout, fork)
    sequence.release()
    assert holds_its_rows(layout, fork)
    fork.release()
    assert pool.used_bytes == 0


def test_a_page_is_copied_at_most_once() -> None:
    pool = PoisonedPool(PLAIN)
    sequence = filled(pool, 300)
    forks = [sequence.fork() for _ in range(3)]
    used = pool.used_bytes
    for number, fork in enumerate(forks):
        for _ in range(5):
            extend(PLAIN, fork, [60 + number])
        assert pool.used_bytes == used + (number + 1) * PLAIN.page_bytes[0]
    extend(PLAIN, sequence, [90])  # the last one that refers to it
    assert pool.used_bytes == used + 3 * PLAIN.page_bytes[0]
    for one in (sequence, *forks):
        assert holds_its_rows(PLAIN, one)


def test_trimming_a_fork_leaves_the_other_whole() -> None:
    pool = PoisonedPool(PLAIN)
    sequence = filled(pool, 600)
    fork = sequence.fork()
    assert fork.rewind(100) == 100
    extend(PLAIN, fork, [91] * 500)
    assert holds_its_rows(PLAIN, sequence)
    assert holds_its_rows(PLAIN, fork)
    assert fork.tokens[:100] == sequence.tokens[:100]


def test_adopted_pages_may_hold_further_tokens() -> None:
    pool = PoisonedPool(PLAIN)
    sequence = filled(pool, 400)
    other = filled(pool, 20, first=60)
    assert other.adopt(sequence.tokens[:290], sequence.pages) is other
    assert holds_its_rows(PLAIN, other)
    extend(PLAIN, other, [95] * 120)
    assert holds_its_rows(PLAIN, other)
    assert holds_its_rows(PLAIN, sequence)
    with pytest.raises(AssertionError, match="do not match"):
        other.adopt(sequence.tokens[:200], sequence.pages)
    other.release()
    sequence.release()
    assert pool.used_bytes == 0


def test_a_sequence_may_adopt_its_own_pages() -> None:
    pool = PoisonedPool(PLAIN)
    sequence = filled(pool, 300)
    sequence.adopt(sequence.tokens[:256], sequence.pages[:1])
    assert holds_its_rows(PLAIN, sequence)
    assert pool.used_bytes == PLAIN.page_bytes[0]


def test_equal_pages_are_shared() -> None:
    pool = PoisonedPool(PLAIN)
    one, other = filled(pool, 300), filled(pool, 300)
    assert pool.used_bytes == 4 * PLAIN.page_bytes[0]
    other.share(0, one.pages[0])
    other.share(0, one.pages[0])  # has no effect a second time
    assert pool.used_bytes == 3 * PLAIN.page_bytes[0]
    assert page(one, 0).references == 2
    assert other.segment([]).tables[0].pages[0] is page(one, 0).data
    assert holds_its_rows(PLAIN, other)


def test_a_dropped_page_is_not_shared_back() -> None:
    pool = PoisonedPool(WINDOWS)
    one, other = filled(pool, 200), filled(pool, 600)
    kept = one.pages[0]
    other.share(0, kept)
    assert present(other, 0) == [1, 2]
    assert other.pages[0][1] is kept[1]


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", range(7))
def test_too_little_memory_loses_nothing_that_was_committed(room: int) -> None:
    pool = PoisonedPool(WINDOWS)
    sequence = filled(pool, 250)
    fork = sequence.fork()
    pool.budget_bytes = pool.used_bytes + room * min(WINDOWS.page_bytes)
    try:
        extend(WINDOWS, fork, [99] * 300)
        assert room >= 4
    except OutOfPages:
        assert len(fork) == 250
        assert len(fork.pages) == 1, "pages that it got before are kept"
    for one in (sequence, fork):
        assert holds_its_rows(WINDOWS, one)
    pool.budget_bytes = 1 << 40
    extend(WINDOWS, fork, [98] * (600 - len(fork)))
    assert holds_its_rows(WINDOWS, fork)
    assert holds_its_rows(WINDOWS, sequence)
    sequence.release()
    fork.release()
    assert pool.used_bytes == 0


# --- windows ------------------------------------------------------------------------------------


def test_pages_outside_the_window_are_dropped_as_it_slides() -> None:
    pool = PoisonedPool(WINDOWS)
    sequence = Sequence(pool, CONTEXT)
    for length in range(1, 1_200):
        extend(WINDOWS, sequence, [length % 40])
        first = max(length - 300 + 1, 0) // PAGE_TOKENS
        last = -(-length // PAGE_TOKENS)
        assert present(sequence, 0) == list(range(first, last))
        assert present(sequence, 1) == list(range(last))
    assert holds_its_rows(WINDOWS, sequence)


def test_a_trim_that_needs_a_dropped_page_falls_back_to_what_is_complete() -> None:
    pool = PoisonedPool(WINDOWS)
    sequence = filled(pool, 1_100)
    assert present(sequence, 0) == [3, 4]  # the window begins at position 801
    assert sequence.rewind(1_090) == 1_090
    assert sequence.rewind(1_067) == 1_067  # sees from position 768 on
    assert sequence.rewind(1_066) == 0  # and this would see the page before
    assert (sequence.tokens, pool.used_bytes) == ([], 0)


def test_a_trim_falls_back_to_a_page_border() -> None:
    """A fork holds the pages before a gap: those of a text that was trimmed and written again."""
    pool = PoisonedPool(WINDOWS)
    short, long = filled(pool, 400), filled(pool, 1_100)
    pages = [*short.pages[:1], *long.pages[1:]]
    mixed = Sequence(pool, CONTEXT).adopt(long.tokens[:300], pages[:2])
    assert present(mixed, 0) == [0]
    assert mixed.rewind(280) == 256
    assert holds_its_rows(WINDOWS, mixed)


@pytest.mark.parametrize("layout", [PLAIN, WINDOWS])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 700), st.integers(1, 600), st.booleans()), min_size=1, max_size=8
    )
)
def test_trim_then_append_equals_fresh(
    layout: KVLayout, steps: list[tuple[int, int, bool]]
) -> None:
    pool = PoisonedPool(layout)
    sequence, forks = Sequence(pool, 10_000), list[Sequence]()
    for number, (back, count, forked) in enumerate(steps):
        wanted = max(len(sequence) - back, 0)
        text = sequence.tokens[:wanted]
        reached = sequence.rewind(wanted)
        assert reached <= wanted
        assert sequence.tokens == text[:reached]
        if layout is PLAIN:
            assert reached == wanted
        extend(layout, sequence, [*text[reached:], *([number + 60] * count)])
        if forked:
            forks.append(sequence.fork())
        assert all(holds_its_rows(layout, one) for one in (sequence, *forks))
    for one in (sequence, *forks):
        one.release()
    assert pool.used_bytes == 0
