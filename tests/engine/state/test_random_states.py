"""Random use of sequences, tree and saved pages of hybrid models: the bits of each text alone."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.core.runner import Rows
from engine.errors import Cancelled
from engine.messages import CacheType
from engine.state.disk.store import needed_parts
from engine.state.pages import Page, bytes_for
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence
from hybrid_bench import LENGTH, TEXTS, Bench, bench_of, cancelled_at, page_bytes
from hybrids import HYBRIDS
from poisoned_pool import PoisonedPool, check_references

pytestmark = pytest.mark.usefixtures("one_torch_thread")

some_live = precondition(lambda self: bool(self.live))


class Machine(RuleBasedStateMachine):
    """Sequences over the texts, a tree, and pages in a dict in place of the disk."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        layout = self.bench.layout
        self.pool = PoisonedPool(layout, bytes_for(layout, LENGTH) + 8 * layout.bytes_per_page)
        self.tree = PrefixTree(self.pool)
        self.live: list[tuple[Sequence, int]] = []  # and its text
        self.saved: dict[tuple[int, int], list[list[bytes | None]]] = {}  # by text and length

    def _extend(self, sequence: Sequence, text: int, count: int) -> None:
        end = min(len(sequence) + count, LENGTH)
        if self.tree.evict(sequence.missing_bytes(end - len(sequence))):
            self.bench.extend(sequence, text, end)

    def _end(self, number: int) -> None:
        sequence, _ = self.live.pop(number % len(self.live))
        sequence.release()

    @initialize()
    def begin(self) -> None:
        self.submit(0, 300)

    @precondition(lambda self: len(self.live) < 4)
    @rule(text=st.integers(0, len(TEXTS) - 1), count=st.sampled_from([1, 100, 256, 300, 512]))
    def submit(self, text: int, count: int) -> None:
        sequence = self.bench.resumed(self.tree, self.pool, text, LENGTH - 1)
        self.live.append((sequence, text))
        self._extend(sequence, text, count)

    @some_live
    @rule(number=st.integers(0, 3), count=st.sampled_from([1, 2, 55, 56, 200, 256, 400]))
    def go_on(self, number: int, count: int) -> None:
        self._extend(*self.live[number % len(self.live)], count)

    @precondition(lambda self: 0 < len(self.live) < 4)
    @rule(number=st.integers(0, 3), text=st.integers(0, len(TEXTS) - 1))
    def fork(self, number: int, text: int) -> None:
        sequence, old = self.live[number % len(self.live)]
        same = TEXTS[text][: len(sequence)] == sequence.tokens
        self.live.append((sequence.fork(), text if same else old))

    @some_live
    @rule(number=st.integers(0, 3), length=st.integers(0, LENGTH))
    def rewind(self, number: int, length: int) -> None:
        sequence, _ = self.live[number % len(self.live)]
        wanted = min(length, len(sequence))
        assert sequence.rewind(wanted) <= wanted

    @some_live
    @rule(number=st.integers(0, 3), layer=st.integers(0, 2), count=st.sampled_from([1, 60, 300]))
    def cancel(self, number: int, layer: int, count: int) -> None:
        sequence, text = self.live[number % len(self.live)]
        tokens = TEXTS[text][len(sequence) :][:count]
        if not tokens or not self.tree.evict(sequence.missing_bytes(len(tokens))):
            return
        with pytest.raises(Cancelled):
            self.bench.runner.hidden([Rows(sequence, tokens)], cancelled_at(layer))

    @some_live
    @rule(number=st.integers(0, 3), whole=st.booleans(), ends=st.booleans())
    def insert(self, number: int, whole: bool, ends: bool) -> None:
        sequence, _ = self.live[number % len(self.live)]
        self.tree.insert("", sequence, whole_pages=whole, checkpoint=ends)
        if ends and not whole:
            self._end(number)

    @rule(blocks=st.integers(1, 12))
    def evict(self, blocks: int) -> None:
        self.tree.evict(blocks * self.bench.layout.bytes_per_page)

    @rule(text=st.integers(0, len(TEXTS) - 1))
    def save(self, text: int) -> None:
        match = self.tree.match_to_save("", TEXTS[text])
        self.saved[text, match.length] = [
            [None if page is None else bytes(page_bytes(page)) for page in pages]
            for pages in match.pages
        ]

    @precondition(lambda self: len(self.live) < 4 and any(end for _, end in self.saved))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        text, end = data.draw(st.sampled_from([key for key in self.saved if key[1]]))
        needed = needed_parts(self.bench.layout.windows, end)
        if not self.tree.evict(len(needed) * self.bench.layout.bytes_per_page):
            return
        pages: list[tuple[Page | None, ...]] = []
        for parts, wanted in zip(self.saved[text, end], needed, strict=True):
            taken: list[Page | None] = []
            for group, (part, is_needed) in enumerate(zip(parts, wanted, strict=True)):
                page = self.pool.take(group) if part is not None and is_needed else None
                if page is not None and part is not None:
                    page_bytes(page)[:] = part
                taken.append(page)
            pages.append(tuple(taken))
        sequence = self.bench.sequence(self.pool).adopt(TEXTS[text][:end], pages)
        for page in (page for parts in pages for page in parts if page is not None):
            self.pool.release(page)
        self.live.append((sequence, text))

    def teardown(self) -> None:
        for sequence, _ in self.live:
            sequence.rewind(len(sequence))
        check_references(self.pool, [sequence for sequence, _ in self.live], self.tree)
        for sequence, _ in self.live:
            sequence.release()
        self.tree.clear()
        assert self.pool.used_bytes == 0


@pytest.mark.sweep
@pytest.mark.parametrize("cache", [CacheType.F32, CacheType.Q8_0])
@pytest.mark.parametrize("name", HYBRIDS)
def test_random_use_gives_the_bits_of_each_text_alone(name: str, cache: CacheType) -> None:
    machine = type("Machine", (Machine,), {"bench": bench_of(name, cache)})
    run_state_machine_as_test(machine, settings=settings(max_examples=10, stateful_step_count=20))
