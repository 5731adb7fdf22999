"""Page pool whose free pages are full of NaN, and which knows who refers to each page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from engine.state.pages import Page, PagePool
from engine.state.prefix_tree import Node, PrefixTree
from engine.state.sequence import Sequence
from kernels.states.kv_pages import KVLayout

_POISON = 0xFF  # NaN in f32 and f16, -1 in codes


class PoisonedPool(PagePool):
    """Fills new and freed pages with NaN, so that use after free shows in results."""

    def __init__(self, layout: KVLayout, budget_bytes: int = 1 << 62) -> None:
        super().__init__(layout, poisoned, budget_bytes)

    def _take(self, group: int) -> Page:
        page = super()._take(group)
        assert bool((page.data == _POISON).all()), "a page was written after it was freed"
        return page

    def release(self, page: Page) -> None:
        if page.references == 1:
            page.data.fill_(_POISON)
        super().release(page)


def poisoned(size: int) -> Tensor:
    """Memory full of NaN."""
    return torch.full((size,), _POISON, dtype=torch.uint8)


def nodes(tree: PrefixTree, stacks: Iterable[str] = ("",)) -> list[Node]:
    """All nodes of these adapter stacks."""
    paths = (leaf.path() for stack in stacks for leaf in tree.leaves(stack))
    return list({id(node): node for path in paths for node in path}.values())


def check_references(
    pool: PagePool, sequences: Iterable[Sequence], tree: PrefixTree, stacks: Iterable[str] = ("",)
) -> None:
    """Compare counted references and bytes with the pages that sequences and tree refer to."""
    held = Counter(map(id, _pages(sequences, tree, stacks)))
    pages = {id(page): page for page in _pages(sequences, tree, stacks)}
    for key, page in pages.items():
        assert page.references == held[key], f"{page.references} references, {held[key]} holders"
    assert pool.used_bytes == sum(pool.layout.page_bytes[page.group] for page in pages.values())


def _pages(
    sequences: Iterable[Sequence], tree: PrefixTree, stacks: Iterable[str]
) -> Iterator[Page]:
    for sequence in sequences:
        yield from (page for parts in sequence.pages for page in parts if page is not None)
    for node in nodes(tree, stacks):
        yield from (page for page in node.pages if page is not None)
