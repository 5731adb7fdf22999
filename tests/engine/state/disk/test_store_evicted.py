"""Evicted pages in the page store: with an owner, from the end of a text, within the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from engine import delete_snapshots, snapshots_folder, snapshots_size
from engine.errors import Cancelled
from engine.state.disk import page_file
from engine.state.disk.cleanup import deletion_stamp, deletions
from engine.state.disk.page_file import StateKey
from engine.state.disk.sequence_file import SavedSequence, encoded_ids
from engine.state.disk.store import PageStore
from saved_pages import (
    KEY,
    PLENTY,
    MemoryPage,
    Saves,
    memory_pages,
    page_files,
    restored,
    sequence_files,
    words,
)

TWO = StateKey("b" * 64, "", "f16", (1000, 300))
WINDOWS = (0, 300)


@pytest.fixture
def store() -> PageStore:
    return PageStore(snapshots_folder())


def evict(
    store: PageStore,
    tokens: Sequence[int],
    *indices: int,
    conversation: str = "one",
    key: StateKey = KEY,
    windows: Sequence[int] = (0,),
    **options: object,
) -> int:
    """Write these pages of a text, the last one among them; checks that all are released."""
    sources = memory_pages(tokens, key, windows)
    pages: Mapping[int, MemoryPage] = {index: sources[index] for index in indices}
    settings = {"stamp": store.deletion_stamp(conversation), "budget_bytes": PLENTY} | options
    try:
        return store.add_evicted(
            conversation, key, {}, encoded_ids(tokens), pages, windows=windows, **settings
        )  # type: ignore[call-arg]
    finally:
        assert all(page.released for page in pages.values())


def evict_from_the_end(store: PageStore, tokens: list[int], **options: object) -> None:
    for index in reversed(range(-(-len(tokens) // 256))):
        evict(store, tokens[: (index + 1) * 256], index, **options)


def only(store: PageStore) -> SavedSequence:
    (found,) = store.sequences()
    return found


@pytest.mark.parametrize("length", [1, 256, 257, 900])
def test_a_text_evicted_from_its_end_is_one_sequence(store: PageStore, length: int) -> None:
    evict_from_the_end(store, words(length))
    assert restored(store, only(store)) == length
    assert len(page_files()) == -(-length // 256)
    again = PageStore(snapshots_folder())
    assert restored(again, only(again)) == length
    assert evict(store, words(length), -(-length // 256) - 1) == 0, "it is on the disk"


def test_pages_in_memory_need_not_be_on_the_disk(store: PageStore) -> None:
    tokens = words(1000)
    evict(store, tokens, 3)
    evict(store, tokens[:768], 2)
    saved = only(store)
    assert restored(store, saved) == 0
    page = (object(),)
    assert store.usable_prefix(saved, (0,), None, [page, page]) == 1000
    assert store.usable_prefix(saved, (0,), 600, [page, page]) == 600
    assert store.usable_prefix(saved, (0,), None, [page, (None,)]) == 256


def test_a_window_needs_its_parts_from_memory_or_disk(store: PageStore) -> None:
    tokens = words(1000)
    options = {"key": TWO, "windows": WINDOWS}
    sources = memory_pages(tokens, TWO, WINDOWS)
    assert [page.held for page in sources] == [(True, False)] * 2 + [(True, True)] * 2
    evict(store, tokens, 3, **options)
    saved = only(store)
    assert saved.held == (1, 1, 3, 3)
    whole, part = (object(), object()), (object(), None)
    assert store.usable_prefix(saved, WINDOWS, None, [part, part, whole]) == 1000
    assert store.usable_prefix(saved, WINDOWS, None, [part, part, part]) == 0
    store.add_evicted(
        "one", TWO, {}, encoded_ids(tokens[:768]), {2: sources[2]},
        stamp=store.deletion_stamp("one"), windows=WINDOWS, budget_bytes=PLENTY,
    )  # fmt: skip
    assert store.usable_prefix(saved, WINDOWS, None, [part, part, part]) == 1000


def test_a_saved_sequence_is_spared_and_an_evicted_one_replaced(store: PageStore) -> None:
    saved = Saves(store).save(words(300))
    evict_from_the_end(store, words(700))
    assert len(store.sequences()) == 2
    evict_from_the_end(store, words(1100))
    found = {len(one.tokens): one for one in store.sequences()}
    assert set(found) == {300, 1100}
    assert found[300].path == saved.path
    assert restored(store, found[1100]) == 1100
    Saves(store).save(words(1500))
    assert len(only(store).tokens) == 1500


def test_pages_of_a_saved_text_are_not_written_again(store: PageStore) -> None:
    Saves(store).save(words(900))
    before = page_files(), sequence_files()
    evict_from_the_end(store, words(900))
    assert (page_files(), sequence_files()) == before
    evict_from_the_end(store, words(900), conversation="two")
    assert page_files() == before[0]
    assert len(sequence_files()) == 2, "it has an owner more"
    delete_snapshots(["one"])
    assert page_files() == before[0]
    delete_snapshots(["two"])
    assert snapshots_size() == 0


def test_branches_have_a_sequence_each(store: PageStore) -> None:
    one, other = words(600), words(300, seed=5, after=words(256))
    evict(store, one, 2, 1)
    evict(store, other, 2, 1)
    evict(store, one[:256], 0)
    assert sorted(restored(store, saved) for saved in store.sequences()) == [556, 600]


def test_nothing_is_written_for_a_conversation_that_was_deleted(store: PageStore) -> None:
    store.make_folder()
    stamps = {name: store.deletion_stamp(name) for name in ("one", "two", "three")}
    assert len(set(stamps.values())) == 1
    delete_snapshots(["one", "two"])
    assert deletion_stamp(deletions(snapshots_folder()), "three") == stamps["three"]
    for name in ("one", "two"):
        assert evict(store, words(100), 0, conversation=name, stamp=stamps[name]) == 0
    assert evict(store, words(100), 0, conversation="three", stamp=stamps["three"]) > 0
    assert evict(store, words(100, seed=2), 0, conversation="one") > 0, "it has continued"
    new = store.deletion_stamp("one")
    delete_snapshots()
    assert snapshots_size() == 0
    assert evict(store, words(100), 0, conversation="one", stamp=new) == 0
    assert evict(store, words(100), 0, conversation="three", stamp=stamps["three"]) == 0
    assert snapshots_size() == 0


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"all": 3}', b"\xff"])
def test_a_damaged_file_of_deletions_is_replaced(store: PageStore, damage: bytes) -> None:
    store.make_folder()
    file = snapshots_folder() / "pages" / ".deletions"
    before = store.deletion_stamp("one")
    file.write_bytes(damage)
    assert store.deletion_stamp("one") == before
    delete_snapshots(["one"])
    assert store.deletion_stamp("one") != before
    assert store.deletion_stamp("two") == before


def test_the_budget_holds_and_a_larger_text_is_not_written(store: PageStore) -> None:
    budget = 10_000
    for number in range(8):
        evict_from_the_end(
            store, words(700, seed=number), conversation=str(number), budget_bytes=budget
        )
        assert snapshots_size() <= budget
    assert len(store.sequences()) == 1
    before = page_files(), sequence_files()
    assert evict(store, words(1200), 4, budget_bytes=budget) == 0
    assert (page_files(), sequence_files()) == before


def test_an_interrupted_write_leaves_nothing(
    store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancel() -> None:
        if page_files():
            raise Cancelled

    with pytest.raises(Cancelled):
        evict(store, words(900), 2, 3, checkpoint=cancel)
    assert snapshots_size() == 0
    monkeypatch.setattr(page_file, "write", _full)
    with pytest.raises(OSError, match="full"):
        evict(store, words(900), 2, 3)
    assert snapshots_size() == 0


def _full(*arguments: object) -> int:
    raise OSError(28, "full")
