"""Prefix tree: matches at any position, shared pages, eviction of the least recently used."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

import pytest
import torch

from engine.state.pages import PagePool
from engine.state.prefix_tree import Node, PrefixTree
from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, LayerShape
from kv_writing import extend, holds_its_rows
from poisoned_pool import PoisonedPool, check_references, nodes

PLAIN = KVLayout([LayerShape(2, 16)], torch.float32)
WINDOWS = KVLayout([LayerShape(1, 16, 300), LayerShape(2, 16)], torch.float32)
SIZE = PLAIN.bytes_per_page


def text(length: int, first: int = 0) -> list[int]:
    return [(first + at) % 83 for at in range(length)]


def processed(pool: PagePool, tokens: Tokens[int], seed: int = 0) -> Sequence:
    sequence = Sequence(pool, 8_000)
    extend(pool.layout, sequence, tokens, seed)
    return sequence


def remember(tree: PrefixTree, pool: PagePool, tokens: Tokens[int], stack: str = "") -> None:
    """Process a text, insert it and release the sequence."""
    sequence = processed(pool, tokens)
    tree.insert(stack, sequence)
    sequence.release()


def resumed(tree: PrefixTree, pool: PagePool, tokens: Tokens[int], stack: str = "") -> Sequence:
    """A sequence with the cached prefix of these tokens."""
    match = tree.match(stack, tokens)
    return Sequence(pool, 8_000).adopt(tokens[: match.length], match.pages)


@pytest.fixture(params=[PLAIN, WINDOWS], ids=["plain", "windows"])
def pool(request: pytest.FixtureRequest) -> PoisonedPool:
    return PoisonedPool(request.param)


@pytest.mark.parametrize("length", [1, 200, 255, 256, 257, 511, 512, 513, 900])
def test_a_text_is_found_again_as_far_as_it_is_equal(pool: PoisonedPool, length: int) -> None:
    tree, tokens = PrefixTree(pool), text(length)
    remember(tree, pool, tokens)
    used = pool.used_bytes
    for shared in sorted(
        {0, 1, length // 2, length - 1, length, 256, 512} & set(range(length + 1))
    ):
        wanted = [*tokens[:shared], 99, 98]
        match = tree.match("", wanted)
        assert len(match.pages) == -(-match.length // PAGE_TOKENS)
        if pool.layout is PLAIN:
            assert match.length == shared
        sequence = resumed(tree, pool, wanted)
        assert holds_its_rows(pool.layout, sequence)
        extend(pool.layout, sequence, wanted[match.length :])
        assert holds_its_rows(pool.layout, sequence)
        sequence.release()
        assert pool.used_bytes == used
    tree.clear()
    assert pool.used_bytes == 0


def test_a_limit_leaves_the_last_token_to_compute(pool: PoisonedPool) -> None:
    tree, tokens = PrefixTree(pool), text(512)
    remember(tree, pool, tokens)
    assert tree.match("", tokens).length == 512
    assert tree.match("", tokens, 511).length == 511
    assert tree.match("", tokens, 0).length == 0


def test_adapters_have_texts_of_their_own() -> None:
    pool = PoisonedPool(PLAIN)
    tree, tokens = PrefixTree(pool), text(300)
    remember(tree, pool, tokens)
    assert tree.match("leaf", tokens).length == 0
    remember(tree, pool, tokens[:280], "leaf")
    assert [tree.match(stack, tokens).length for stack in ("", "leaf")] == [300, 280]
    assert pool.used_bytes == 4 * SIZE
    tree.clear("")
    assert [tree.match(stack, tokens).length for stack in ("", "leaf")] == [0, 280]
    assert pool.used_bytes == 2 * SIZE
    tree.clear("")
    tree.clear("leaf")
    assert pool.used_bytes == 0


def test_a_longer_text_replaces_the_partial_last_page() -> None:
    pool = PoisonedPool(PLAIN)
    tree = PrefixTree(pool)
    for length in (100, 200, 256, 300, 700):
        remember(tree, pool, text(length))
        assert [len(node.all_tokens()) for node in tree.leaves("")] == [length]
        assert pool.used_bytes == -(-length // PAGE_TOKENS) * SIZE
        assert tree.match("", text(800)).length == length
    remember(tree, pool, text(650))  # a shorter one adds nothing
    assert [len(node.all_tokens()) for node in tree.leaves("")] == [700]
    assert pool.used_bytes == 3 * SIZE


def test_texts_share_the_pages_before_they_part() -> None:
    pool = PoisonedPool(PLAIN)
    tree, stem = PrefixTree(pool), text(600)
    for number in range(3):
        remember(tree, pool, [*stem, *text(100, 20 * number)])
    assert pool.used_bytes == (2 + 3) * SIZE
    assert len(tree.leaves("")) == 3
    for number in range(3):
        assert tree.match("", [*stem, *text(50, 20 * number)]).length == 650


def test_equal_pages_computed_twice_are_kept_once() -> None:
    pool = PoisonedPool(PLAIN)
    tree = PrefixTree(pool)
    one, other = processed(pool, text(600)), processed(pool, text(600))
    assert pool.used_bytes == 6 * SIZE
    tree.insert("", one)
    tree.insert("", other)
    assert pool.used_bytes == 4 * SIZE  # the last, partial page of each
    check_references(pool, [one, other], tree)
    extend(PLAIN, one, text(400, 5))
    extend(PLAIN, other, text(400, 6))
    assert all(holds_its_rows(PLAIN, each) for each in (one, other))


def test_whole_pages_are_inserted_while_a_text_grows() -> None:
    pool = PoisonedPool(PLAIN)
    tree, sequence = PrefixTree(pool), Sequence(pool, 2_000)
    for number in range(7):
        extend(PLAIN, sequence, text(100, number))
        tree.insert("", sequence, whole_pages=True)
        cached = len(sequence) // PAGE_TOKENS
        assert tree.match("", sequence.tokens).length == cached * PAGE_TOKENS
        assert pool.used_bytes == len(sequence.pages) * SIZE, "the last page was not copied"
    check_references(pool, [sequence], tree)


def test_leaves_are_sorted_by_their_last_use() -> None:
    pool = PoisonedPool(PLAIN)
    tree = PrefixTree(pool)
    texts = [text(300, first) for first in (1, 2, 3)]
    for tokens in texts:
        remember(tree, pool, tokens)
    assert [leaf.all_tokens() for leaf in tree.leaves("")] == texts[::-1]
    tree.match("", texts[0])
    assert [leaf.all_tokens()[0] for leaf in tree.leaves("")] == [1, 3, 2]
    assert tree.leaves("leaf") == []


# --- eviction -----------------------------------------------------------------------------------


def test_the_least_recently_used_text_is_evicted_from_its_end() -> None:
    pool = PoisonedPool(PLAIN)
    tree = PrefixTree(pool)
    texts = [text(600, first) for first in (1, 2, 3)]
    for tokens in texts:
        remember(tree, pool, tokens)
    tree.match("", texts[0])
    pool.budget_bytes = 9 * SIZE
    assert tree.evict(0)
    lengths = []
    for _ in range(9):
        assert tree.evict(pool.budget_bytes - pool.used_bytes + SIZE)
        lengths.append([len(_cached(tree, tokens)) for tokens in texts])
    assert lengths == [
        [600, 512, 600], [600, 256, 600], [600, 0, 600],
        [600, 0, 512], [600, 0, 256], [600, 0, 0],
        [512, 0, 0], [256, 0, 0], [0, 0, 0],
    ]  # fmt: skip
    assert pool.used_bytes == 0


def test_one_text_is_evicted_whole_before_another_loses_a_page() -> None:
    pool = PoisonedPool(PLAIN)
    tree = PrefixTree(pool)
    texts = [text(600, first) for first in (1, 2, 3)]
    for tokens in texts:
        remember(tree, pool, tokens)
    tree.match("", texts[0])
    pool.budget_bytes = pool.used_bytes
    assert tree.evict(3 * SIZE)
    assert [len(_cached(tree, tokens)) for tokens in texts] == [600, 0, 600]
    assert tree.evict(7 * SIZE)
    assert [len(_cached(tree, tokens)) for tokens in texts] == [512, 0, 0]


def _cached(tree: PrefixTree, tokens: list[int]) -> list[int]:
    """The cached tokens of a text that shares none with others, without marking it as used."""
    texts = [leaf.all_tokens() for leaf in tree.leaves("")]
    return next((cached for cached in texts if cached[0] == tokens[0]), [])


def test_pages_in_use_stay() -> None:
    pool = PoisonedPool(PLAIN)
    tree = PrefixTree(pool)
    remember(tree, pool, text(600))
    remember(tree, pool, text(300, 40))
    user = resumed(tree, pool, text(520))
    pool.budget_bytes = pool.used_bytes
    assert not tree.evict(3 * SIZE), "three pages are in use, and only two are not"
    assert pool.used_bytes == 3 * SIZE
    assert holds_its_rows(PLAIN, user)
    check_references(pool, [user], tree)
    user.release()
    assert tree.evict(5 * SIZE)
    assert pool.used_bytes == 0


def test_eviction_spares_what_is_needed_no_more() -> None:
    pool = PoisonedPool(PLAIN)
    tree = PrefixTree(pool)
    for first in range(5):
        remember(tree, pool, text(256, first))
    pool.budget_bytes = 6 * SIZE
    assert tree.evict(SIZE)
    assert pool.used_bytes == 5 * SIZE
    assert tree.evict(2 * SIZE)
    assert pool.used_bytes == 4 * SIZE


def test_window_pages_inside_a_text_are_evicted_first() -> None:
    pool = PoisonedPool(WINDOWS)
    tree, tokens = PrefixTree(pool), text(2_048)
    sequence = Sequence(pool, 4_000)
    for start in range(0, len(tokens), 128):
        extend(WINDOWS, sequence, tokens[start : start + 128])
        tree.insert("", sequence, whole_pages=True)
    sequence.release()
    windowed, wide = WINDOWS.page_bytes
    assert pool.used_bytes == 8 * (windowed + wide)
    assert tree.match("", [*tokens[:600], 99]).length == 600
    pool.budget_bytes = pool.used_bytes
    assert tree.evict(5 * windowed)
    assert pool.used_bytes == 3 * windowed + 8 * wide
    user = resumed(tree, pool, tokens)
    assert len(user) == 2_048, "the end of the text is still usable"
    assert holds_its_rows(WINDOWS, user)
    user.release()
    assert tree.match("", [*tokens[:600], 99]).length == 0


def test_a_text_whose_window_pages_are_gone_is_filled_in_again() -> None:
    pool = PoisonedPool(WINDOWS)
    tree, tokens = PrefixTree(pool), text(1_100)
    remember(tree, pool, tokens)  # dropped its first window pages before it was inserted
    assert tree.match("", tokens).length == 1_100
    assert tree.match("", tokens[:700]).length == 0
    again = Sequence(pool, 4_000)
    for start in range(0, 768, 128):
        extend(WINDOWS, again, tokens[start : start + 128])
        tree.insert("", again, whole_pages=True)
    again.release()
    for length in (100, 256, 700, 768):
        assert tree.match("", tokens[:length]).length == length
    assert tree.match("", tokens).length == 1_100
    check_references(pool, [], tree)
    tree.clear()
    assert pool.used_bytes == 0


def test_a_tree_of_many_texts_stays_within_the_budget() -> None:
    pool = PoisonedPool(WINDOWS, budget_bytes=12 * WINDOWS.bytes_per_page)
    tree = PrefixTree(pool)
    for number in range(60):
        tokens = [*text(300, number % 7), *text(300, number)]
        sequence = resumed(tree, pool, tokens)
        assert tree.evict(sequence.missing_bytes(len(tokens) - len(sequence)))
        extend(WINDOWS, sequence, tokens[len(sequence) :])
        assert holds_its_rows(WINDOWS, sequence)
        tree.insert("", sequence)
        check_references(pool, [sequence], tree)
        sequence.release()
        assert pool.used_bytes <= pool.budget_bytes
    assert len(nodes(tree)) >= 10


def test_the_parts_of_a_text_are_found_though_they_do_not_continue_it() -> None:
    pool = PoisonedPool(WINDOWS)
    tree, tokens = PrefixTree(pool), text(900)
    remember(tree, pool, tokens)
    assert [[part is not None for part in parts] for parts in tree.parts("", tokens)] == [
        [False, True], [False, True], [True, True], [True, True]
    ]  # fmt: skip
    assert tree.match("", tokens[:600]).length == 0
    assert len(tree.parts("", tokens[:600])) == 3
    assert len(tree.parts("", [*tokens[:600], 99])) == 2
    assert len(tree.parts("", [*tokens, 1])) == 3
    assert tree.parts("other", tokens) == tree.parts("", [99]) == tree.parts("", []) == []


def test_evicted_pages_are_offered_from_the_end_of_a_text() -> None:
    pool = PoisonedPool(PLAIN)
    tree, offered = PrefixTree(pool), list[tuple[str, int]]()

    def keep(stack: str, node: Node) -> None:
        assert all(page is not None and page.references == 1 for page in node.pages)
        offered.append((stack, len(node.all_tokens())))

    tree.on_evict = keep
    remember(tree, pool, text(600), "a")
    remember(tree, pool, text(300, 7), "b")
    pool.budget_bytes = pool.used_bytes
    assert tree.evict(4 * SIZE)
    assert offered == [("a", 600), ("a", 512), ("a", 256), ("b", 300)]
    assert tree.evict(5 * SIZE, keep=False)
    assert len(offered) == 4
    assert pool.used_bytes == 0


def test_a_forgotten_text_leaves_what_others_share(pool: PoisonedPool) -> None:
    tree = PrefixTree(pool)
    shared = text(512)
    left, right = [*shared, *text(300, 7)], [*shared, *text(300, 11)]
    for tokens in (left, right):
        remember(tree, pool, tokens)
    whole, begin = (tree.match("", one).length for one in (right, [*shared, 99]))
    assert tree.forget("", left) == 300
    assert tree.match("", left).length == begin
    assert tree.match("", right).length == whole
    assert tree.forget("", left) == 0
    assert tree.forget("", right) == len(right)
    assert tree.match("", shared).length == 0
    assert pool.used_bytes == 0


def test_a_text_that_is_used_is_not_forgotten(pool: PoisonedPool) -> None:
    tree, tokens = PrefixTree(pool), text(600)
    remember(tree, pool, tokens)
    running = resumed(tree, pool, tokens)
    tree.forget("", tokens)
    assert tree.match("", tokens).length == 600
    running.release()
    assert tree.forget("", tokens) == 600
    assert pool.used_bytes == 0
