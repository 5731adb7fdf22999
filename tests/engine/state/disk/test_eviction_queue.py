"""Pages between prefix tree and disk: which are written together, for whom, and which are dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from engine import snapshots_folder
from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.state.disk.cleanup import record_deletion
from engine.state.disk.eviction import EvictedPages
from engine.state.disk.page_file import StateKey
from engine.state.disk.saver import Saver
from engine.state.disk.sequence_file import conversation_prefix
from engine.state.disk.store import PageStore
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence as CachedSequence
from kernels.states.kv_pages import KVLayout, LayerShape
from kv_writing import extend
from poisoned_pool import PoisonedPool
from saved_pages import PLENTY

LAYOUT = KVLayout([LayerShape(2, 16)], torch.float32)
KEY = StateKey("d" * 64, "", "f32", LAYOUT.page_bytes)
TIMEOUT_SECONDS = 60


class Fixture:
    """A tree whose evicted pages are written as soon as `go` is set."""

    def __init__(self) -> None:
        self.pool = PoisonedPool(LAYOUT)
        self.pool.most_lent_bytes = 100 * LAYOUT.bytes_per_page
        self.tree = PrefixTree(self.pool)
        self.store = PageStore(snapshots_folder())
        self.go = threading.Event()
        self.saver = Saver()
        self.evicted = EvictedPages(
            self.store,
            self.saver,
            self.pool,
            identify=lambda stack: KEY,
            describe=lambda stack: {},
            to_saved=lambda ids: (ids, ()),
        )
        self.evicted.set_budget(PLENTY)
        self.tree.on_evict = self.evicted.take
        self.saver.run_later(lambda: self.go.wait(TIMEOUT_SECONDS))
        self.contents: dict[tuple[int, ...], bytes] = {}  # of each page, by all tokens to its end

    def process(self, tokens: Sequence[int]) -> None:
        """Put a text into the tree."""
        sequence = CachedSequence(self.pool, 8_000)
        extend(LAYOUT, sequence, tokens)
        for index, (page,) in enumerate(sequence.pages):
            assert page is not None
            end = min((index + 1) * 256, len(tokens))
            self.contents[tuple(tokens[:end])] = page.data.numpy().tobytes()
        self.tree.insert("", sequence)
        sequence.release()

    def evict(self) -> None:
        """Evict everything."""
        self.pool.budget_bytes = 0
        assert self.tree.evict(0)
        self.pool.budget_bytes = PLENTY

    def written(self) -> list[list[int]]:
        """The texts on the disk, every byte compared."""
        self.go.set()
        self.saver.wait()
        assert self.pool.lent_bytes == self.pool.used_bytes == 0
        for saved in self.store.sequences():
            for index, page in enumerate(saved.pages):
                found = bytearray(LAYOUT.bytes_per_page)
                self.store.read_page(page, [memoryview(found)])
                assert found == self.contents[tuple(saved.tokens[: (index + 1) * 256])]
        return sorted(list(saved.tokens) for saved in self.store.sequences())

    def owners(self) -> set[str]:
        return {path.name[:16] for path in snapshots_folder().glob("*.sequence")}


@pytest.fixture
def bench() -> Iterator[Fixture]:
    made = Fixture()
    yield made
    made.go.set()
    made.saver.wait()


def text(length: int, first: int = 0) -> list[int]:
    return [(first + at) % 83 for at in range(length)]


def test_a_short_last_page_is_not_taken_for_a_longer_one(bench: Fixture) -> None:
    """Both are page 1 of the text that was noted, and wait at the same time."""
    bench.evicted.note(1, "one", NO_ADAPTERS, text(300))
    for length in (270, 262, 300, 262):
        bench.process(text(length))
        bench.evict()
    assert bench.written() == [text(300)], "the shorter ones are prefixes of this one"


def test_branches_that_wait_together_are_written_apart(bench: Fixture) -> None:
    one, other = text(600), [*text(300), *text(200, 50)]
    bench.evicted.note(1, "one", NO_ADAPTERS, one)
    bench.evicted.note(2, "one", NO_ADAPTERS, other)
    bench.process(one)
    bench.process(other)
    bench.evict()
    assert bench.written() == sorted([one, other])
    assert bench.evicted.written_pages == 4


def test_pages_belong_to_the_last_conversation_with_their_text(bench: Fixture) -> None:
    bench.evicted.note(1, "one", NO_ADAPTERS, text(300))
    bench.evicted.note(2, "two", NO_ADAPTERS, text(600))
    bench.evicted.note(3, "", NO_ADAPTERS, text(700))
    bench.process(text(600))
    bench.evict()
    assert bench.written() == [text(600)]
    assert bench.owners() == {conversation_prefix("two")}


def test_texts_of_nobody_are_dropped(bench: Fixture) -> None:
    other = Stack(())
    bench.evicted.note(1, "", other, text(300))
    bench.evicted.note(2, "two", other, text(300, 7))
    bench.process(text(300))
    bench.evict()
    assert bench.pool.lent_bytes == 0
    bench.evicted.name(2, "other name")
    bench.evicted.name(1, "one")
    bench.process(text(300))
    bench.evict()
    assert bench.written() == [text(300)]
    assert bench.owners() == {conversation_prefix("one")}


def test_pages_that_wait_are_known_and_can_be_dropped(bench: Fixture) -> None:
    bench.evicted.note(1, "one", NO_ADAPTERS, text(600))
    bench.process(text(600))
    assert not bench.evicted.has("", text(600), 0)
    bench.evict()
    assert bench.evicted.has("", text(600), 0)
    assert bench.evicted.has("", [*text(530), 99], 512)
    assert not bench.evicted.has("", text(600), 600)
    assert not bench.evicted.has("", text(600, 1), 0)
    assert not bench.evicted.has("other", text(600), 0)
    bench.evicted.drop()
    assert not bench.evicted.has("", text(600), 0)
    assert bench.written() == []


def test_switching_the_budget_off_drops_what_waits(bench: Fixture) -> None:
    bench.evicted.note(1, "one", NO_ADAPTERS, text(600))
    bench.process(text(600))
    bench.evict()
    assert bench.pool.lent_bytes
    bench.evicted.set_budget(0)
    assert bench.pool.lent_bytes == 0
    bench.process(text(600))
    bench.evict()
    assert bench.pool.lent_bytes == 0
    assert bench.written() == []


def test_the_callers_thread_never_waits_for_the_disk(
    bench: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = list[str]()
    for name in ("deletions", "deletion_stamp", "make_folder", "sequences"):
        original = getattr(bench.store, name)

        def watched(*operands: object, original: Callable[..., object] = original) -> object:
            callers.append(threading.current_thread().name)
            return original(*operands)

        monkeypatch.setattr(bench.store, name, watched)
    bench.evicted.set_budget(PLENTY)
    bench.evicted.note(1, "", NO_ADAPTERS, text(300))
    bench.evicted.name(1, "one")
    bench.process(text(300))
    bench.evict()
    bench.go.set()
    bench.saver.wait()
    assert set(callers) == {"snapshot"}
    monkeypatch.undo()
    assert bench.written() == [text(300)]


def test_a_text_noted_after_a_deletion_is_written(bench: Fixture) -> None:
    """The deletion is read by then; before that its pages are dropped."""
    bench.go.set()
    bench.evicted.note(1, "one", NO_ADAPTERS, text(300))
    bench.saver.wait()
    record_deletion(snapshots_folder(), ["one"])
    bench.process(text(300))
    bench.evict()
    assert bench.written() == []
    bench.evicted.note(2, "two", NO_ADAPTERS, text(9))
    bench.saver.wait()
    bench.evicted.note(3, "one", NO_ADAPTERS, text(300))
    bench.process(text(300))
    bench.evict()
    assert bench.written() == [text(300)]
