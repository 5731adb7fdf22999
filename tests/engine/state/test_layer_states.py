"""Layer states of hybrid models: however a text was reached, the next logits are the same bits."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from pathlib import Path

import pytest
import torch

from engine.core.runner import Rows
from engine.errors import Cancelled
from engine.messages import CacheType
from engine.state.disk.page_file import StateKey
from engine.state.disk.store import PageRead, PageStore, needed_parts
from engine.state.pages import OutOfPages, Page, PagePool, bytes_for
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence
from hybrid_bench import (
    BRANCHES,
    LENGTH,
    TEXTS,
    Bench,
    bench_of,
    cancelled_at,
    page_bytes,
)
from hybrids import FIXED, HYBRIDS
from kernels.states.layer_state import AT_END, needed_pages
from poisoned_pool import PoisonedPool, check_references

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("one_torch_thread")]


@pytest.fixture(params=HYBRIDS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return bench_of(request.param)


@pytest.fixture(params=FIXED)
def fixed(request: pytest.FixtureRequest) -> Bench:
    return bench_of(request.param)


# --- passes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [7, 255, 256, 300, 512])
def test_states_do_not_depend_on_how_a_text_is_cut(bench: Bench, chunk: int) -> None:
    pool = PoisonedPool(bench.layout)
    sequence = bench.sequence(pool)
    bench.extend(sequence, 0, 90, chunk=1)
    bench.extend(sequence, 0, LENGTH, chunk=chunk)
    sequence.release()
    assert pool.used_bytes == 0


def test_a_state_is_not_ignored(fixed: Bench) -> None:
    """Other states give other logits: the tests here would see a wrong one."""
    sequence = fixed.sequence(PagePool(fixed.layout))
    fixed.extend(sequence, 0, 300)
    group = fixed.layout.windows.index(AT_END)
    page = sequence.pages[1][group]
    assert page is not None
    page.data.view(torch.float32).mul_(1.01)
    ((logits,),) = fixed.runner.step([Rows(sequence, TEXTS[0][300:301])])
    assert not torch.allclose(logits, fixed.wanted[0][300], atol=1e-6)


def test_sequences_run_in_one_pass(bench: Bench) -> None:
    pool = PoisonedPool(bench.layout)
    sequences = [bench.sequence(pool) for _ in range(3)]
    for text, length in enumerate((250, 256, 511)):
        bench.extend(sequences[text], text, length)
    for count in (1, 5, 9, 260):
        starts = [len(one) for one in sequences]
        rows = [Rows(one, TEXTS[at][len(one) :][:count]) for at, one in enumerate(sequences)]
        for text, hidden in enumerate(bench.runner.hidden(rows)):
            found = bench.runner.logits(hidden)
            assert torch.equal(found, bench.wanted[text][starts[text] : starts[text] + count])


def test_layers_that_share_a_state_have_no_pages_of_their_own() -> None:
    layout = bench_of("shared").layout
    assert layout.layers[2] is layout.layers[0]
    assert layout.layers[3] is layout.layers[1]
    assert layout.groups == 2


@pytest.mark.parametrize("length", [1, 200, 256, 300, 512])
def test_a_cancelled_pass_changes_nothing(bench: Bench, length: int) -> None:
    pool = PoisonedPool(bench.layout)
    sequence = bench.sequence(pool)
    bench.extend(sequence, 0, length)
    for layer in range(len(bench.runner.model.blocks)):
        for text in (0, 4):
            tokens = TEXTS[text][length : length + 270]
            with pytest.raises(Cancelled):
                bench.runner.hidden([Rows(sequence, tokens)], cancelled_at(layer))
            assert sequence.tokens == TEXTS[0][:length]
    fork = sequence.fork()
    bench.extend(fork, 0, length + 20)
    bench.extend(sequence, 0, min(length + 290, LENGTH))
    sequence.release()
    fork.release()
    assert pool.used_bytes == 0


# --- sequences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "length"), [(1, 200), (2, 256), (3, 430), (4, 512)])
def test_forks_go_on_as_if_each_were_alone(bench: Bench, text: int, length: int) -> None:
    pool = PoisonedPool(bench.layout)
    parent, _ = BRANCHES[text]
    one = bench.sequence(pool)
    bench.extend(one, parent, length)
    other = one.fork()
    for end in (length + 1, length + 100, LENGTH):
        bench.extend(other, text, end)
        bench.extend(one, parent, end)
    check_references(pool, [one, other], PrefixTree(pool))


@pytest.mark.parametrize(
    ("length", "wanted", "reached"),
    [(300, 300, 300), (300, 299, 256), (300, 256, 256), (300, 255, 0), (256, 256, 256),
     (512, 511, 256), (700, 699, 512), (700, 512, 512), (700, 511, 0), (700, 0, 0)],
)  # fmt: skip
def test_rewind_reaches_a_position_whose_state_is_there(
    fixed: Bench, length: int, wanted: int, reached: int
) -> None:
    pool = PoisonedPool(fixed.layout)
    sequence = fixed.sequence(pool)
    fixed.extend(sequence, 1, length - 1)
    fixed.extend(sequence, 1, length)
    for window in fixed.layout.windows:
        if window > 0 and needed_pages(window, reached).start < needed_pages(window, length).start:
            reached = 0  # pages of the window were dropped
    assert sequence.rewind(wanted) == reached == len(sequence)
    fixed.extend(sequence, 1, length + 40)
    sequence.release()
    assert pool.used_bytes == 0


def test_rewind_reaches_every_position_of_shared_layers() -> None:
    bench = bench_of("shared")
    for wanted in (699, 600, 555):  # of which the window is held
        sequence = bench.sequence(PagePool(bench.layout))
        bench.extend(sequence, 1, 700)
        assert sequence.rewind(wanted) == wanted
        bench.extend(sequence, 1, 720)


# --- prefix tree --------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "reached"), [(0, 600), (1, 0), (2, 256), (3, 256), (4, 512)])
def test_a_cached_text_is_continued_where_a_state_is(fixed: Bench, text: int, reached: int) -> None:
    """At its end, or at the page boundary before another text goes on differently."""
    pool = PoisonedPool(fixed.layout)
    tree = PrefixTree(pool)
    base = 0 if text in (0, 1, 2) else BRANCHES[text][0]
    sequence = fixed.sequence(pool)
    for end in (256, 512, 600):
        fixed.extend(sequence, base, end)
        tree.insert("", sequence, whole_pages=end < 600)
    sequence.release()
    found = fixed.resumed(tree, pool, text, LENGTH)
    assert len(found) == reached
    fixed.extend(found, text, LENGTH)
    found.release()
    tree.clear()
    assert pool.used_bytes == 0


def test_an_edited_turn_is_read_again_from_the_page_before_it(fixed: Bench) -> None:
    """After every other state was evicted that is not needed for that."""
    pool = PoisonedPool(fixed.layout)
    tree = PrefixTree(pool)
    sequence = fixed.sequence(pool)
    fixed.extend(sequence, 3, 300)
    tree.insert("", sequence, whole_pages=True)
    fixed.extend(sequence, 3, 430)  # the end of the first answer
    tree.insert("", sequence)
    fixed.extend(sequence, 3, 530)  # the second prompt
    tree.insert("", sequence, whole_pages=True)
    fixed.extend(sequence, 3, LENGTH)
    tree.insert("", sequence)
    sequence.release()
    pool.budget_bytes = pool.used_bytes
    group = fixed.layout.windows.index(AT_END)
    assert tree.match("", TEXTS[3][:790]).length == 768
    edited = fixed.resumed(tree, pool, 1, LENGTH)  # differs from position 430 on
    assert len(edited) == 256
    edited.release()
    again = fixed.resumed(tree, pool, 3, 529)
    assert len(again) == 512
    again.release()
    assert tree.evict(fixed.layout.page_bytes[group])
    assert len(fixed.resumed(tree, pool, 3, LENGTH)) == LENGTH


def test_states_inside_a_text_are_evicted_before_texts(fixed: Bench) -> None:
    pool = PoisonedPool(fixed.layout)
    tree = PrefixTree(pool)
    sequence = fixed.sequence(pool)
    for end in (256, 512, LENGTH):
        fixed.extend(sequence, 0, end)
        tree.insert("", sequence, whole_pages=end < LENGTH, checkpoint=False)
    sequence.release()
    pool.budget_bytes = pool.used_bytes
    group = fixed.layout.windows.index(AT_END)
    for boundary in (512, 256):
        assert tree.match("", TEXTS[0][: boundary + 1]).length == boundary
    assert tree.evict(2 * fixed.layout.page_bytes[group])
    assert tree.match("", TEXTS[0]).length == LENGTH
    if 0 in fixed.layout.windows:
        assert tree.match("", TEXTS[0][:511]).length == 0


def test_a_long_text_stays_within_the_budget_of_one_sequence(fixed: Bench) -> None:
    budget = bytes_for(fixed.layout, LENGTH)
    pool = PoisonedPool(fixed.layout, budget)
    tree = PrefixTree(pool)
    sequence = fixed.sequence(pool)
    while len(sequence) < LENGTH:
        count = min(512 if len(sequence) == 100 else 100, LENGTH - len(sequence))
        assert tree.evict(sequence.missing_bytes(count))
        fixed.extend(sequence, 0, len(sequence) + count)
        tree.insert("", sequence, whole_pages=True)
    assert pool.used_bytes <= budget


# --- saved pages --------------------------------------------------------------------------------


class _Source:
    """The pages of one block, to be saved."""

    def __init__(self, pages: tuple[Page | None, ...]) -> None:
        self.pages = pages
        self.held = [page is not None for page in pages]

    def parts(self) -> list[memoryview | None]:
        return [None if page is None else page_bytes(page) for page in self.pages]

    def release(self) -> None:
        pass


@pytest.mark.parametrize("cache", list(CacheType))
@pytest.mark.parametrize("name", HYBRIDS)
def test_restored_pages_go_on_as_those_in_memory(
    name: str, cache: CacheType, tmp_path: Path
) -> None:
    bench = bench_of(name, cache)
    pool = PoisonedPool(bench.layout)
    tree = PrefixTree(pool)
    sequence = bench.sequence(pool)
    bench.extend(sequence, 3, 300)
    tree.insert("", sequence, whole_pages=True)  # a prompt, whose checkpoint is saved too
    bench.extend(sequence, 3, 700)
    tree.insert("", sequence)
    key = StateKey("a" * 64, "", cache.value, bench.layout.page_bytes)
    match = tree.match_to_save("", TEXTS[3][:700])
    assert match.length == 700
    store = PageStore(tmp_path)
    sources = [_Source(pages) for pages in match.pages]
    store.save("talk", key, {}, TEXTS[3][:700], sources, {}, budget_bytes=1 << 40)
    (saved,) = store.sequences()
    for text, shared in ((3, 700), (1, 430), (3, 699)):
        length = store.usable_prefix(saved, bench.layout.windows, shared)
        if AT_END in bench.layout.windows:
            assert length == {700: 700, 430: 256, 699: 512}[shared]
        restored = _restored(bench, store, saved.pages, TEXTS[3][:length])
        bench.extend(restored, text, LENGTH)


@pytest.mark.parametrize("length", [554, 555, 556])
def test_a_text_is_restored_whose_window_begins_at_a_page(length: int, tmp_path: Path) -> None:
    """With 555 tokens: memory has dropped the page whose last position is just outside."""
    bench = bench_of("shared")
    assert 300 in bench.layout.windows
    pool = PoisonedPool(bench.layout)
    tree = PrefixTree(pool)
    sequence = bench.sequence(pool)
    bench.extend(sequence, 3, length)
    tree.insert("", sequence)
    match = tree.match_to_save("", TEXTS[3][:length])
    assert match.length == length
    store = PageStore(tmp_path)
    key = StateKey("a" * 64, "", CacheType.F32.value, bench.layout.page_bytes)
    sources = [_Source(pages) for pages in match.pages]
    store.save("talk", key, {}, TEXTS[3][:length], sources, {}, budget_bytes=1 << 40)
    (saved,) = store.sequences()
    assert store.usable_prefix(saved, bench.layout.windows) == length
    restored = _restored(bench, store, saved.pages, TEXTS[3][:length])
    bench.extend(restored, 3, LENGTH)


def _restored(bench: Bench, store: PageStore, files: Tokens[object], tokens: list[int]) -> Sequence:
    pool = PoisonedPool(bench.layout)
    pages = [
        tuple(pool.take(group) if needed else None for group, needed in enumerate(parts))
        for parts in needed_parts(bench.layout.windows, len(tokens))
    ]
    reads = [
        PageRead(file, [None if page is None else page_bytes(page) for page in parts])  # pyright: ignore
        for file, parts in zip(files, pages, strict=False)
    ]
    good, error = store.read_pages(reads)
    assert (good, error) == (len(pages), None)
    return bench.sequence(pool).adopt(tokens, pages)


def test_the_parts_to_save_are_those_that_are_needed() -> None:
    for length in (1, 255, 256, 257, 511, 655, 656, 700, 768):
        for window in (0, AT_END, 1, 100, 256, 400, 5000):
            parts = needed_parts((window,), length)
            found = [at for at, (needed,) in enumerate(parts) if needed]
            assert found == list(needed_pages(window, length))


def test_too_little_memory_loses_no_state(fixed: Bench) -> None:
    for pages in range(1, 8):
        pool = PoisonedPool(fixed.layout)
        sequence = fixed.sequence(pool)
        fixed.extend(sequence, 0, 300)
        pool.budget_bytes = pool.used_bytes + pages * min(fixed.layout.page_bytes)
        try:
            sequence.reserve(500)
        except OutOfPages:
            assert sequence.tokens == TEXTS[0][:300]
        pool.budget_bytes = 1 << 40
        fixed.extend(sequence, 0, LENGTH)
