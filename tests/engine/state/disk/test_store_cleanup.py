"""Page store: budget, eviction, cleanup after failures and crashes, files of older versions."""

from __future__ import annotations

import errno
import os

import pytest

from engine import Cancelled, FaultKind, RequestError, snapshots_folder, snapshots_size
from engine.state.disk import page_file
from engine.state.disk.atomic import folder_lock
from engine.state.disk.sequence_file import conversation_prefix
from engine.state.disk.store import PageStore, check_budget
from saved_pages import (
    KEY,
    Saves,
    find,
    memory_pages,
    page_files,
    restored,
    sequence_files,
    words,
)


@pytest.fixture
def store() -> PageStore:
    return PageStore(snapshots_folder())


@pytest.fixture
def saves(store: PageStore) -> Saves:
    return Saves(store)


def test_eviction_is_least_recently_used_and_keeps_the_new_one(
    saves: Saves, store: PageStore
) -> None:
    results = [saves.save(words(500, seed=number), str(number)) for number in range(5)]
    size = results[0].bytes_written
    store.touch(find(store, results[0]))
    new = saves.save(words(500, seed=9), "new", budget=3 * size + 100)
    assert new.evicted == 3
    assert [result.path.exists() for result in results] == [True, False, False, False, True]
    assert new.total_bytes == snapshots_size() <= 3 * size + 100
    for result in (results[0], results[4], new):
        assert restored(store, find(store, result)) == 500
    assert len(page_files()) == 6


def test_shared_pages_survive_the_eviction_of_one_of_their_sequences(
    saves: Saves, store: PageStore
) -> None:
    prefix = words(600)
    old = saves.save(words(500, seed=1, after=prefix), "old")
    young = saves.save(words(500, seed=2, after=prefix), "young")
    last = saves.save(words(500, seed=3, after=prefix), "last", budget=young.total_bytes)
    assert last.evicted == 1
    assert not old.path.exists()
    assert len(page_files()) == 2 + 3 + 3
    for result in (young, last):
        assert restored(store, find(store, result)) == 1100


def test_new_sequence_above_the_budget_is_kept_alone(saves: Saves, store: PageStore) -> None:
    saves.save(words(500, seed=1), "a")
    saves.save(words(500, seed=2), "b")
    new = saves.save(words(500, seed=3), "c", budget=1)
    assert new.evicted == 2
    assert restored(store, find(store, new)) == 500
    assert len(store.sequences()) == 1
    assert len(page_files()) == 2


def test_a_sequence_above_the_budget_is_refused_with_figures() -> None:
    check_budget(5, 5)
    with pytest.raises(RequestError, match=r"takes 2,000 MB.* is 1,000 MB"):
        check_budget(2_000_000_000, 1_000_000_000)


def test_other_files_are_neither_counted_nor_deleted(saves: Saves) -> None:
    saves.save(words(3))
    others = [snapshots_folder() / "notes.txt", snapshots_folder() / "pages" / "notes.page"]
    others += [snapshots_folder() / "model.safetensors"]
    for other in others:
        other.write_text("mine", encoding="utf-8")
    saves.save(words(3, seed=1), budget=1)
    PageStore(snapshots_folder())
    assert all(other.exists() for other in others)
    assert len(sequence_files()) == 1


def test_damaged_sequence_is_listed_evicted_and_its_pages_freed(
    saves: Saves, store: PageStore
) -> None:
    result = saves.save(words(500), "bad")
    result.path.write_bytes(b"\xff" * 1000)
    (saved,) = store.sequences()
    assert saved.fault is not None
    assert saved.fault.fault.kind is FaultKind.SAVED_DAMAGED
    assert saved.belongs_to("bad")
    new = saves.save(words(3), budget=1)
    assert new.evicted == 1
    assert not result.path.exists()
    assert len(page_files()) == 1


def test_cancelled_save_leaves_nothing(store: PageStore) -> None:
    tokens = words(1500)
    for stop in range(1, 12):
        calls = 0

        def cancel(stop: int = stop) -> None:
            nonlocal calls
            calls += 1
            if calls == stop:
                raise Cancelled

        pages = memory_pages(tokens)
        with pytest.raises(Cancelled):
            store.save("one", KEY, {}, tokens, pages, {}, budget_bytes=1 << 40, checkpoint=cancel)
        assert all(page.released for page in pages)
        assert snapshots_size() == 0


def test_full_disk_fails_the_save_and_leaves_nothing(
    store: PageStore, saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = saves.save(words(600))
    size, fsync, left = snapshots_size(), os.fsync, 2

    def full(handle: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    tokens = words(2000, after=words(600))
    pages = memory_pages(tokens)
    with pytest.raises(OSError, match="No space"):
        store.save("one", KEY, {}, tokens, pages, {}, budget_bytes=1 << 40)
    assert all(page.released for page in pages)
    assert snapshots_size() == size
    assert restored(store, find(store, kept)) == 600


def test_opening_deletes_what_crashed_writers_left(saves: Saves) -> None:
    kept = saves.save(words(600))
    folder = snapshots_folder()
    orphan = folder / "pages" / page_file.file_name("0" * 64, 0)
    left = [
        orphan,
        folder / "pages" / f".{orphan.name}.00ff00ff.tmp",
        folder / f".{kept.path.name}.00ff00ff.tmp",
    ]
    for path in left:
        path.write_bytes(b"half a file")
    assert snapshots_size() == kept.total_bytes + 3 * 11
    with folder_lock(folder / "pages", exclusive=False, seconds=0) as locked:
        assert locked
        PageStore(folder)  # another process may be writing these
        assert all(path.exists() for path in left)
    store = PageStore(folder)
    assert not any(path.exists() for path in left)
    assert restored(store, find(store, kept)) == 600


def test_files_deleted_by_others_are_tolerated(saves: Saves, store: PageStore) -> None:
    saved = find(store, saves.save(words(3)))
    saved.path.unlink()
    store.touch(saved)
    assert store.delete(saved)
    assert store.sequences() == []
    saves.save(words(4))


def test_a_file_in_the_place_of_the_folder_is_tolerated() -> None:
    snapshots_folder().parent.mkdir(parents=True, exist_ok=True)
    snapshots_folder().write_text("in the way", encoding="utf-8")
    store = PageStore(snapshots_folder())
    assert store.sequences() == []
    with pytest.raises((FileExistsError, NotADirectoryError)):
        Saves(store).save(words(3))


# --- versions 1 and 2 ---------------------------------------------------------------------------


def test_files_of_older_versions_are_deleted_on_opening() -> None:
    folder = snapshots_folder()
    folder.mkdir(parents=True)
    assert PageStore(folder).removed.sentence == ""
    for conversation in ("one", "two"):
        name = f"{conversation_prefix(conversation)}-{'0f' * 16}.safetensors"
        (folder / name).write_bytes(bytes(100))
    (folder / f".{conversation_prefix('three')}-{'0f' * 16}.safetensors.0011aabb.tmp").touch()
    other = folder / "model.safetensors"
    other.touch()
    store = PageStore(folder)
    assert [path for path in folder.iterdir() if path.is_file()] == [other]
    assert (store.removed.files, store.removed.size_bytes) == (3, 200)
    assert store.removed.sentence.startswith("Saved contexts of an older version were removed")
    reason = store.removed.refusal("one")
    assert reason is not None
    assert reason.fault.kind is FaultKind.SAVED_VERSION
    assert store.removed.refusal("three") is None
    assert PageStore(folder).removed.refusal("one") is None
