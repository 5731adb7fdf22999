"""Prefix tree: KV pages of everything processed so far, found by token ids.

A node is one page: its 256 token ids (fewer in a leaf) and the pages of all groups. The path from a
root spells the tokens before it, so a node's keys and values are valid for every sequence that
begins with these tokens. There is one root for each adapter stack, since adapters change keys and
values. Nodes hold references to pages; `evict` frees those that no sequence uses when memory is short.

A state of fixed size, of recurrent layers, is valid at the end of its node only, so of these texts
a prefix can be continued that ends where a node does. The states worth most are checkpoints: those
at the last page boundary before the end of a prompt or an answer, from which an edited turn or
another answer is processed. Other states inside a text are the first to be evicted.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from engine.state.pages import Page, PagePool
from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS
from kernels.states.layer_state import AT_END, needed_pages

_CHECKPOINTS = 2  # of a text, the last ones, that are saved and evicted no sooner than the text

Pages = tuple[Page | None, ...]  # one for each group; None: outside the group's window


class Node:
    """One page of a cached text."""

    __slots__ = ("children", "is_checkpoint", "pages", "parent", "tokens", "used")

    def __init__(self, parent: Node | None, tokens: tuple[int, ...], pages: list[Page | None]):
        self.parent = parent
        self.tokens = tokens
        self.pages = pages
        self.children: dict[tuple[int, ...], Node] = {}
        self.used = 0  # time of the last use, for eviction
        self.is_checkpoint = False  # a prompt or an answer ended in the page after this one

    def path(self) -> list[Node]:
        """The nodes from below the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def all_tokens(self) -> list[int]:
        """The tokens of the path."""
        return list(itertools.chain.from_iterable(node.tokens for node in self.path()))


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of some tokens."""

    length: int  # tokens
    pages: list[Pages]  # of each 256 positions; the last one may hold further tokens


class PrefixTree:
    """The cached pages of one model, by adapter stack and token ids; not thread-safe."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._roots: dict[str, Node] = {}
        self._clock = itertools.count(1)
        # Called with the key of the stack before an evicted node gives up its pages.
        self.on_evict: Callable[[str, Node], None] | None = None

    def match(self, stack: str, tokens: Tokens[int], limit: int | None = None) -> Match:
        """The longest cached prefix of `tokens` of at most `limit` tokens, marked as used now."""
        path, length = self._find(stack, tokens, limit)
        windows = self._pool.layout.windows
        needed = [needed_pages(window, length) for window in windows]
        pages = [
            tuple(
                page if index in some else None
                for page, some in zip(node.pages, needed, strict=True)
            )
            for index, node in enumerate(path)
        ]
        return Match(length, pages)

    def match_to_save(self, stack: str, tokens: Tokens[int]) -> Match:
        """The longest cached prefix of `tokens`, with what the checkpoints inside it need."""
        match = self.match(stack, tokens)
        path, _ = self._find(stack, tokens, match.length)
        pages = [list(some) for some in match.pages]
        groups = self._state_groups()
        inside = set().union(*(_checkpoints(path[:-1], group) for group in groups))
        for checkpoint in inside:
            for group, window in enumerate(self._pool.layout.windows):
                for index in needed_pages(window, (checkpoint + 1) * PAGE_TOKENS):
                    pages[index][group] = path[index].pages[group]
        return Match(match.length, [tuple(some) for some in pages])

    def parts(self, stack: str, tokens: Tokens[int]) -> list[Pages]:
        """What is cached of the pages of `tokens`; it may be too little to continue the text."""
        found: list[Pages] = []
        node = self._roots.get(stack)
        for start in range(0, len(tokens), PAGE_TOKENS):
            wanted = tuple(tokens[start : start + PAGE_TOKENS])
            child, shared = (None, 0) if node is None else _best_child(node, wanted)
            if child is None or shared < len(wanted):
                break
            whole = len(child.tokens) == shared
            windows = self._pool.layout.windows
            found.append(
                tuple(
                    page if whole or window != AT_END else None
                    for page, window in zip(child.pages, windows, strict=True)
                )
            )
            node = child
        return found

    def insert(
        self, stack: str, sequence: Sequence, *, whole_pages: bool = False, checkpoint: bool = True
    ) -> None:
        """Add the pages of a sequence, and let it share those that are cached already.

        With `whole_pages` without the last, incomplete one: the sequence continues, and would have
        to copy it before it writes to it. `checkpoint`: a prompt or an answer ends here.
        """
        node = self._roots.setdefault(stack, Node(None, (), []))
        now = next(self._clock)
        whole: list[Node] = []
        for index, pages in enumerate(sequence.pages):
            start = index * PAGE_TOKENS
            tokens = tuple(sequence.tokens[start : start + PAGE_TOKENS])
            if whole_pages and len(tokens) < PAGE_TOKENS:
                break
            node = self._child(node, tokens, pages)
            node.used = now
            if len(tokens) == PAGE_TOKENS:
                whole.append(node)
                sequence.share(index, node.pages)
        if checkpoint:
            # At a boundary also the one before: the last token of a prompt is processed again.
            for one in whole[-1 - (len(sequence) % PAGE_TOKENS == 0) :]:
                one.is_checkpoint = True

    def leaves(self, stack: str) -> list[Node]:
        """The ends of all cached texts, most recently used first."""
        root = self._roots.get(stack)
        found = [] if root is None else [node for node in _walk(root) if not node.children]
        return sorted(found, key=lambda node: node.used, reverse=True)

    def evict(self, size_bytes: int, *, keep: bool = True) -> bool:
        """Free pages until `size_bytes` more fit; False if they do not.

        In this order: pages inside texts that layers with a window no longer read, states inside
        texts but the last checkpoints, the ends of texts, least recently used first, and the last
        checkpoints. Pages that a sequence uses stay: freeing them in the tree would free no memory.
        With `keep` `on_evict` may keep the ends of texts for a while, beside the budget, and write
        them to disk; the rest is gone.
        """
        if self._pool.has_room(size_bytes):
            return True
        self._evict_windows(size_bytes)
        self._evict_states(size_bytes, checkpoints=False)
        order = itertools.count()  # of nodes used at the same time
        ends = [
            (node.used, next(order), stack, node)
            for stack, root in self._roots.items()
            for node in _walk(root)
            if not node.children and _is_idle(node)
        ]
        heapq.heapify(ends)
        while ends and not self._pool.has_room(size_bytes):
            _, _, stack, node = heapq.heappop(ends)
            if keep and self.on_evict is not None:
                self.on_evict(stack, node)
            parent = self._remove(node)
            if parent.parent is not None and not parent.children and _is_idle(parent):
                heapq.heappush(ends, (parent.used, next(order), stack, parent))
        self._evict_states(size_bytes, checkpoints=True)
        return self._pool.has_room(size_bytes)

    def forget(self, stack: str, tokens: Tokens[int]) -> int:
        """Remove the end of a text, up to what other texts share or a sequence uses; returns how many
        of its tokens are gone.
        """
        node, path = self._roots.get(stack), list[Node]()
        for start in range(0, len(tokens), PAGE_TOKENS):
            wanted = tuple(tokens[start : start + PAGE_TOKENS])
            node, shared = (None, 0) if node is None else _best_child(node, wanted)
            if node is None or shared < len(node.tokens):  # another text goes on there
                break
            path.append(node)
        gone = 0
        while path and not path[-1].children and _is_idle(path[-1]):
            gone += len(path[-1].tokens)
            self._remove(path.pop())
        return gone

    def clear(self, stack: str | None = None) -> None:
        """Forget everything, or everything computed with one adapter stack."""
        stacks = list(self._roots) if stack is None else [stack]
        for name in stacks:
            if root := self._roots.pop(name, None):
                for node in _walk(root):
                    self._release(node)

    def _child(self, node: Node, tokens: tuple[int, ...], pages: Pages) -> Node:
        """The child with these tokens, added if it is new; a shorter one becomes it."""
        child = node.children.get(tokens)
        if child is None:
            for known in list(node.children.values()):
                if len(known.tokens) < len(tokens) and tokens[: len(known.tokens)] == known.tokens:
                    del node.children[known.tokens]
                    self._release(known)
            for known in node.children.values():
                if known.tokens[: len(tokens)] == tokens:
                    return known
            child = Node(node, tokens, [None] * len(pages))
            node.children[tokens] = child
        for group, page in enumerate(pages):
            if child.pages[group] is None and page is not None:
                child.pages[group] = self._pool.retain(page)
        return child

    def _find(self, stack: str, tokens: Tokens[int], limit: int | None) -> tuple[list[Node], int]:
        """The nodes of the longest cached prefix that can be continued, and its length."""
        node, now = self._roots.get(stack), next(self._clock)
        most = len(tokens) if limit is None else min(limit, len(tokens))
        path: list[Node] = []
        length = 0
        while node is not None and length < most:
            wanted = tuple(tokens[length : min(length + PAGE_TOKENS, most)])
            node, shared = _best_child(node, wanted)
            if node is None:
                break
            node.used = now
            path.append(node)
            length += shared
            if shared < PAGE_TOKENS:
                break
        length = self._usable(path, length)
        return path[: -(-length // PAGE_TOKENS)], length

    def _usable(self, path: list[Node], length: int) -> int:
        """The longest prefix up to `length` that can be continued: all it needs is present."""
        while length:
            last = (length - 1) // PAGE_TOKENS
            is_end = length == last * PAGE_TOKENS + len(path[last].tokens)
            if all(
                (window != AT_END or is_end) and path[index].pages[group] is not None
                for group, window in enumerate(self._pool.layout.windows)
                for index in needed_pages(window, length)
            ):
                return length
            length = last * PAGE_TOKENS
        return 0

    def _state_groups(self) -> list[int]:
        """The groups of layers with states of fixed size."""
        windows = self._pool.layout.windows
        return [group for group, window in enumerate(windows) if window == AT_END]

    def _texts(self) -> Iterator[Node]:
        """The ends of all cached texts, least recently used first in each stack."""
        for stack in list(self._roots):
            yield from reversed(self.leaves(stack))

    def _evict_states(self, size_bytes: int, *, checkpoints: bool) -> None:
        """Free states of fixed size inside texts; without `checkpoints` not the last of these."""
        for group in self._state_groups():
            if self._pool.has_room(size_bytes):
                return
            paths = [leaf.path()[:-1] for leaf in self._texts()]
            kept: set[int] = set()
            if not checkpoints:
                kept = {id(path[at]) for path in paths for at in _checkpoints(path, group)}
            for node in (node for path in paths for node in path):
                page = node.pages[group]
                if page is None or page.references > 1 or id(node) in kept:
                    continue
                if len(node.children) == 1 or checkpoints:
                    node.pages[group] = None
                    self._pool.release(page)
                    if self._pool.has_room(size_bytes):
                        return

    def _evict_windows(self, size_bytes: int) -> None:
        """Free window pages inside cached texts: their ends stay usable."""
        windows = [
            (group, window) for group, window in enumerate(self._pool.layout.windows) if window > 0
        ]
        for leaf in self._texts() if windows else ():
            path = leaf.path()
            length = len(path) * PAGE_TOKENS
            for group, window in windows:
                for node in path[: needed_pages(window + PAGE_TOKENS, length).start]:
                    page = node.pages[group]
                    if page is not None and page.references == 1 and len(node.children) == 1:
                        node.pages[group] = None
                        self._pool.release(page)
                        if self._pool.has_room(size_bytes):
                            return

    def _remove(self, node: Node) -> Node:
        """Remove an end of a text; returns the node before it."""
        assert node.parent is not None
        del node.parent.children[node.tokens]
        self._release(node)
        return node.parent

    def _release(self, node: Node) -> None:
        for group, page in enumerate(node.pages):
            if page is not None:
                node.pages[group] = None
                self._pool.release(page)


def _checkpoints(inside: list[Node], group: int) -> set[int]:
    """The indices of the last checkpoints among the nodes inside a text."""
    found = [
        index
        for index, node in enumerate(inside)
        if node.is_checkpoint and node.pages[group] is not None
    ]
    return set(found[-_CHECKPOINTS:])


def _best_child(node: Node, wanted: tuple[int, ...]) -> tuple[Node | None, int]:
    """The child that shares the longest prefix with `wanted`, and its length."""
    exact = node.children.get(wanted)
    if exact is not None:
        return exact, len(wanted)
    best, longest = None, 0
    for child in node.children.values():
        shared = common_length(child.tokens, wanted)
        if shared > longest:
            best, longest = child, shared
    return best, longest


def common_length(one: Tokens[int], other: Tokens[int]) -> int:
    """Length of the longest common prefix; by bisection, which compares slices at C speed.

    Both must be of one type: a list never equals a tuple.
    """
    low, high = 0, min(len(one), len(other)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _is_idle(node: Node) -> bool:
    """Whether no sequence uses any page of a node."""
    return all(page is None or page.references == 1 for page in node.pages)


def _walk(node: Node) -> Iterator[Node]:
    """All nodes below `node`."""
    waiting = list(node.children.values())
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children.values()
