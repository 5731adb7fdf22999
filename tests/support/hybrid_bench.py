"""Texts over the hybrid models, and the logits after every prefix of each, read alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from collections.abc import Sequence as Tokens

import torch
from torch import Tensor

from engine.core.runner import Rows, Runner
from engine.core.session import Session
from engine.errors import Cancelled
from engine.messages import CacheType
from engine.state.pages import Page, PagePool
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence
from hybrids import HYBRIDS

V, CONTEXT = 48, 1_100
LENGTH = 800  # tokens of a text
# Texts with the prefix of another one up to a position inside a page, and at a page boundary.
BRANCHES = ((0, 0), (0, 200), (0, 256), (1, 430), (2, 512))


def _texts() -> list[list[int]]:
    texts: list[list[int]] = []
    for number, (parent, shared) in enumerate(BRANCHES):
        random = torch.Generator().manual_seed(number)
        own = torch.randint(0, V, (LENGTH,), generator=random).tolist()
        texts.append([*(texts[parent][:shared] if texts else []), *own[shared:]])
        if shared:
            texts[number][shared] = (texts[parent][shared] + 1) % V  # it differs at once
    return texts


TEXTS = _texts()


class Bench:
    """A runner and the logits after every prefix of the texts, each read alone in one pass."""

    def __init__(self, name: str, cache: CacheType = CacheType.F32) -> None:
        self.runner = Runner(HYBRIDS[name](V), cache)
        self.layout = self.runner.layout
        self.wanted = [self._read(text) for text in TEXTS]

    def _read(self, text: Tokens[int]) -> Tensor:
        session = Session(self.runner, PagePool(self.layout), CONTEXT)
        return torch.cat([session.logits(hidden) for hidden in session.prefill(text)])

    def sequence(self, pool: PagePool) -> Sequence:
        return Sequence(pool, CONTEXT)

    def extend(self, sequence: Sequence, text: int, end: int, *, chunk: int = 512) -> None:
        """Process a text up to position `end`, and compare the logits after every token."""
        while (at := len(sequence)) < end:
            tokens = TEXTS[text][at : min(at + chunk, end)]
            (hidden,) = self.runner.hidden([Rows(sequence, tokens)])
            found = self.runner.logits(hidden)
            assert torch.equal(found, self.wanted[text][at : at + len(tokens)]), (text, at)
        assert sequence.tokens == TEXTS[text][:end]

    def resumed(self, tree: PrefixTree, pool: PagePool, text: int, end: int) -> Sequence:
        """A sequence with the longest cached prefix of a text up to `end`."""
        match = tree.match("", TEXTS[text][:end])
        return self.sequence(pool).adopt(TEXTS[text][: match.length], match.pages)


def cancelled_at(layer: int) -> Callable[[], None]:
    """A checkpoint that cancels a pass before a layer."""
    calls = itertools.count()

    def checkpoint() -> None:
        if next(calls) == layer:
            raise Cancelled

    return checkpoint


BENCHES: dict[tuple[str, CacheType], Bench] = {}


def bench_of(name: str, cache: CacheType = CacheType.F32) -> Bench:
    if (name, cache) not in BENCHES:
        BENCHES[name, cache] = Bench(name, cache)
    return BENCHES[name, cache]


def page_bytes(page: Page) -> memoryview:
    return memoryview(page.data.numpy()).cast("B")
