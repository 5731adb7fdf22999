"""Random use of sequences and the prefix tree against lists of tokens, on poisoned pages."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.state.pages import OutOfPages
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, LayerShape
from kv_writing import extend, holds_its_rows
from poisoned_pool import PoisonedPool, check_references

STACKS = ("", "leaf")
CONTEXT = 1_500
LAYOUTS = {
    "plain": KVLayout([LayerShape(1, 16)], torch.float32),
    "f16": KVLayout([LayerShape(2, 24), LayerShape(1, 8)], torch.float16),
    "windows": KVLayout([LayerShape(1, 16, 300), LayerShape(1, 16)], torch.float32),
    "small windows": KVLayout([LayerShape(1, 8), LayerShape(1, 8, 40), LayerShape(1, 8, 600)],
                              torch.float16),
}  # fmt: skip
PIECES = st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 30, 200, 255, 256, 257, 400]))


def tokens_of(piece: tuple[int, int]) -> list[int]:
    symbol, count = piece
    return [symbol * 5 + at % 3 for at in range(count)]


some_live = precondition(lambda self: bool(self.live))


class Machine(RuleBasedStateMachine):
    """Sequences and a tree; what is known about each is a list of its tokens."""

    layout = LAYOUTS["plain"]

    def __init__(self) -> None:
        super().__init__()
        self.pool = PoisonedPool(self.layout, 12 * self.layout.bytes_per_page)
        self.tree = PrefixTree(self.pool)
        self.live: list[tuple[str, Sequence, list[int]]] = []
        self.cached: dict[str, list[list[int]]] = {stack: [] for stack in STACKS}

    def _one(self, number: int) -> tuple[str, Sequence, list[int]]:
        return self.live[number % len(self.live)]

    def _extend(self, stack: str, sequence: Sequence, known: list[int], new: list[int]) -> None:
        """Append tokens, after an eviction if there is no room; or change nothing."""
        new = new[: sequence.context - len(sequence)]
        for room in (0, sequence.missing_bytes(len(new))):
            if room and not self._evict(room):
                return
            try:
                extend(self.layout, sequence, new, STACKS.index(stack))
            except OutOfPages:
                continue
            known += new
            return
        raise AssertionError("no room after an eviction")

    def _evict(self, room: int) -> bool:
        evicted = self.tree.evict(room)
        assert evicted == self.pool.has_room(room)
        for stack in STACKS:
            left = [leaf.all_tokens() for leaf in self.tree.leaves(stack)]
            for text in left:
                assert any(known[: len(text)] == text for known in self.cached[stack])
            self.cached[stack] = left
        return evicted

    @initialize(pieces=st.lists(PIECES, min_size=1, max_size=4))
    def begin(self, pieces: list[tuple[int, int]]) -> None:
        self.submit("", pieces)

    @precondition(lambda self: len(self.live) < 6)
    @rule(stack=st.sampled_from(STACKS), pieces=st.lists(PIECES, min_size=1, max_size=4))
    def submit(self, stack: str, pieces: list[tuple[int, int]]) -> None:
        prompt = [token for piece in pieces for token in tokens_of(piece)][:CONTEXT]
        match = self.tree.match(stack, prompt, len(prompt) - 1)
        most = max((_shared(text, prompt[:-1]) for text in self.cached[stack]), default=0)
        if any(self.layout.windows):
            assert match.length <= most
        else:
            assert match.length == most
        assert len(match.pages) == -(-match.length // PAGE_TOKENS)
        sequence = Sequence(self.pool, CONTEXT).adopt(prompt[: match.length], match.pages)
        known = prompt[: match.length]
        self.live.append((stack, sequence, known))
        self._extend(stack, sequence, known, prompt[match.length :])

    @some_live
    @rule(number=st.integers(0, 5), piece=PIECES)
    def append(self, number: int, piece: tuple[int, int]) -> None:
        self._extend(*self._one(number), tokens_of(piece))

    @some_live
    @rule(number=st.integers(0, 5))
    def fork(self, number: int) -> None:
        stack, sequence, known = self._one(number)
        if len(self.live) < 6:
            self.live.append((stack, sequence.fork(), list(known)))

    @some_live
    @rule(number=st.integers(0, 5), back=st.sampled_from([0, 1, 2, 40, 255, 256, 300, 900]))
    def trim(self, number: int, back: int) -> None:
        _, sequence, known = self._one(number)
        wanted = max(len(known) - back, 0)
        reached = sequence.rewind(wanted)
        assert reached <= wanted
        if not any(self.layout.windows):
            assert reached == wanted
        del known[reached:]

    @some_live
    @rule(number=st.integers(0, 5), whole_pages=st.booleans())
    def insert(self, number: int, whole_pages: bool) -> None:
        stack, sequence, known = self._one(number)
        self.tree.insert(stack, sequence, whole_pages=whole_pages)
        end = len(known) // PAGE_TOKENS * PAGE_TOKENS if whole_pages else len(known)
        self.cached[stack].append(known[:end])

    @some_live
    @rule(number=st.integers(0, 5))
    def release(self, number: int) -> None:
        one = self._one(number)
        one[1].release()
        self.live = [other for other in self.live if other is not one]

    @rule(pages=st.integers(1, 4))
    def evict(self, pages: int) -> None:
        free = self.pool.budget_bytes - self.pool.used_bytes
        self._evict(free + pages * self.layout.bytes_per_page)

    @rule(stack=st.sampled_from(STACKS))
    def clear(self, stack: str) -> None:
        self.tree.clear(stack)
        self.cached[stack] = []

    @invariant()
    def every_sequence_has_its_tokens_and_rows(self) -> None:
        for stack, sequence, known in self.live:
            assert sequence.tokens == known
            assert holds_its_rows(self.layout, sequence, STACKS.index(stack))

    @invariant()
    def every_page_is_counted(self) -> None:
        check_references(self.pool, [one[1] for one in self.live], self.tree, STACKS)
        assert self.pool.used_bytes <= self.pool.budget_bytes

    @invariant()
    def cached_texts_hold_their_rows(self) -> None:
        for stack in STACKS:
            for leaf in self.tree.leaves(stack)[:2]:
                text = leaf.all_tokens()
                match = self.tree.match(stack, text)
                sequence = Sequence(self.pool, CONTEXT).adopt(text[: match.length], match.pages)
                assert holds_its_rows(self.layout, sequence, STACKS.index(stack))
                sequence.release()

    def teardown(self) -> None:
        for _, sequence, _ in self.live:
            sequence.release()
        self.tree.clear()
        assert self.pool.used_bytes == 0


def _shared(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _run(layout: KVLayout, examples: int) -> None:
    machine = type("Machine", (Machine,), {"layout": layout})
    # Without shrinking: an example takes up to a second, so it would take minutes.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            suppress_health_check=checks,
            phases=phases,
        ),
    )


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAYOUTS)
def test_sequences_and_tree_agree_with_lists_of_tokens(name: str) -> None:
    _run(LAYOUTS[name], 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_sequences_and_tree_agree_with_lists_of_tokens_in_many_runs(name: str) -> None:
    _run(LAYOUTS[name], 1_000)
