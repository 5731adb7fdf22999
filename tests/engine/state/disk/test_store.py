"""Page store: incremental saves, sharing, superseded sequences, windows, damaged pages."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine import Cancelled, snapshots_folder, snapshots_size
from engine.state.disk import page_file
from engine.state.disk.atomic import Damaged
from engine.state.disk.page_file import PAGE_TOKENS
from engine.state.disk.store import (
    AT_END,
    PageRead,
    PageStore,
    needed_parts,
)
from saved_pages import (
    KEY,
    MemoryPage,
    Saves,
    contents,
    find,
    memory_pages,
    page_files,
    restored,
    sequence_files,
    words,
)

WINDOWED = replace(KEY, page_bytes=(1000, 300))
WINDOWS = (0, 400)


@pytest.fixture
def store() -> PageStore:
    return PageStore(snapshots_folder())


@pytest.fixture
def saves(store: PageStore) -> Saves:
    return Saves(store)


def new_bytes(before: dict[int, int]) -> int:
    """Size of the files that are new since `before`, by inode and time of change."""
    sizes = {stamp: size for stamp, size in inodes().items() if stamp not in before}
    return sum(sizes.values())


def inodes() -> dict[int, int]:
    found: dict[int, int] = {}
    for path in snapshots_folder().rglob("*"):
        status = path.stat()
        if path.is_file() and path.name != ".lock":
            found[hash((status.st_ino, status.st_ctime_ns))] = status.st_size
    return found


def written_by_system() -> int:
    """Bytes that this process has passed to write calls so far; 0 where the system counts none."""
    if sys.platform != "linux":  # Wine shows Linux's /proc, which counts Wine's writes too
        return 0
    try:
        text = Path("/proc/self/io").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("wchar"))


# --- incremental saves --------------------------------------------------------------------------


def test_saved_sequence_is_restored_by_another_store(store: PageStore, saves: Saves) -> None:
    assert store.sequences() == []
    tokens = words(1000)
    result = saves.save(tokens, resume={"random": "00ff"})
    assert result.bytes_written == result.total_bytes == snapshots_size()
    again = PageStore(snapshots_folder())
    (saved,) = again.sequences()
    assert list(saved.tokens) == tokens
    assert saved.resume == {"random": "00ff"}
    assert [page.tokens for page in saved.pages] == [256, 256, 256, 232]
    assert restored(again, saved) == 1000


def test_one_more_turn_writes_only_its_pages(store: PageStore) -> None:
    key = replace(KEY, page_bytes=(100_000,))
    saves = Saves(store, key)
    tokens = words(4096)
    saves.save(tokens)
    before, counted = inodes(), written_by_system()
    longer = words(300, seed=1, after=tokens)
    pages = memory_pages(longer, key)
    result = store.save("one", key, {}, longer, pages, {}, budget_bytes=1 << 40)
    counted = written_by_system() - counted
    sequence = result.path.stat().st_size
    page = page_file.file_size(find(store, result).pages[16], 100_000)
    assert result.bytes_written == page + page - 4 * (256 - 44) + sequence
    assert new_bytes(before) == result.bytes_written
    assert counted in (0, result.bytes_written)
    assert [page.read for page in pages] == [0] * 16 + [1, 1], "only new pages are read"
    assert all(page.released for page in pages)
    assert restored(store, find(store, result)) == 4396


def test_saving_the_same_again_writes_the_sequence_only(saves: Saves, store: PageStore) -> None:
    first = saves.save(words(700))
    again = saves.save(words(700), resume={"random": "1"})
    assert again.path == first.path
    assert again.bytes_written == again.path.stat().st_size
    assert find(store, again).resume == {"random": "1"}


def test_each_page_is_released_once_it_is_written(store: PageStore) -> None:
    tokens = words(1000)
    pages = memory_pages(tokens)
    seen: list[int] = []

    class Watched(MemoryPage):
        def parts(self) -> list[memoryview | None]:
            seen.append(sum(not page.released for page in pages))
            return super().parts()

    pages[:] = [Watched(KEY, tokens, page, (True,)) for page in range(4)]
    store.save("one", KEY, {}, tokens, pages, {}, budget_bytes=1 << 40)
    assert seen == [4, 3, 2, 1]


def test_branches_and_conversations_share_pages(saves: Saves, store: PageStore) -> None:
    prefix = words(600)
    one = saves.save(words(500, seed=1, after=prefix))
    files = page_files()
    two = saves.save(words(500, seed=2, after=prefix))
    other = saves.save(words(500, seed=3, after=prefix), "other")
    assert len(files) == 5
    assert len(page_files()) == 5 + 3 + 3
    assert len(store.sequences()) == 3
    for result in (one, two, other):
        assert restored(store, find(store, result)) == 1100
    store.delete(find(store, one))
    assert store.collect() > 3 * 1000
    assert len(page_files()) == 2 + 3 + 3
    for result in (two, other):
        assert restored(store, find(store, result)) == 1100


def test_other_keys_share_nothing(saves: Saves, store: PageStore) -> None:
    saves.save(words(600))
    for key in (replace(KEY, stack="x"), replace(KEY, cache="f32"), replace(KEY, layout="2")):
        result = saves.save(words(600), key=key)
        assert restored(store, find(store, result)) == 600
    assert len(page_files()) == 12
    assert len(store.sequences()) == 4


def test_saves_delete_the_prefixes_of_their_conversation(saves: Saves, store: PageStore) -> None:
    superseded = [saves.save(words(300)), saves.save(words(700))]
    kept = [
        saves.save(words(300), "two"),
        saves.save(words(300), key=replace(KEY, stack="x")),
        saves.save(words(1, seed=1, after=words(299))),
        saves.save(words(1200)),
    ]
    new = saves.save(words(900))
    assert not any(result.path.exists() for result in superseded)
    assert all(result.path.exists() for result in [*kept, new])
    for result in [*kept, new]:
        saved = find(store, result)
        assert restored(store, saved) == len(saved.tokens)


def test_conversation_that_grows_leaves_no_old_pages(saves: Saves) -> None:
    for length in range(1, 1100, 100):
        saves.save(words(length))
    assert len(sequence_files()) == 1
    assert len(page_files()) == 4


# --- groups with a window -----------------------------------------------------------------------


def test_needed_parts_are_those_of_the_definition() -> None:
    for tokens in (0, 1, 255, 256, 257, 300, 511, 655, 656, 657, 1000):
        for window in (1, 100, 256, 400, 5000):
            needed = needed_parts((0, window, AT_END), tokens)
            assert len(needed) == -(-tokens // PAGE_TOKENS)
            for page, (full, windowed, end) in enumerate(needed):
                positions = range(page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS)
                assert full
                # The last position of the window is that of the next token, in the same page.
                assert windowed == any(tokens - window < at <= tokens for at in positions)
                assert end == (page == len(needed) - 1)


def test_window_group_is_saved_for_its_last_pages_only(store: PageStore) -> None:
    saves = Saves(store, WINDOWED, WINDOWS)
    saved = find(store, saves.save(words(1300)))
    assert saved.held == (1, 1, 1, 3, 3, 3)
    assert len(page_files()) == 6 + 3
    assert saved.size_bytes == snapshots_size()
    assert restored(store, saved, WINDOWS) == 1300
    assert store.usable_prefix(saved, WINDOWS, 1299) == 1299
    # The window of the token after 1167 others begins with position 768, the first of page 3.
    assert store.usable_prefix(saved, WINDOWS, 1167) == 1167
    assert store.usable_prefix(saved, WINDOWS, 1166) == 0
    assert store.usable_prefix(saved, (0, 0)) == 0


def test_missing_part_of_a_shared_page_is_added(store: PageStore) -> None:
    saves = Saves(store, WINDOWED, WINDOWS)
    saves.save(words(1300))
    short = saves.save(words(600), "two")
    assert short.bytes_written == short.path.stat().st_size + sum(
        page_file.file_size(page, 300) for page in find(store, short).pages[:3]
    ) + page_file.file_size(find(store, short).pages[2], 1000)
    assert restored(store, find(store, short), WINDOWS) == 600


def test_window_parts_of_earlier_turns_serve_branches_until_space_is_short(
    store: PageStore,
) -> None:
    saves = Saves(store, WINDOWED, WINDOWS)
    for length in (256, 512, 768, 1024, 1280, 1536):
        last = saves.save(words(length))
    assert len(store.sequences()) == 1
    saved = find(store, last)
    assert restored(store, saved, WINDOWS, 700) == 700
    needed = saved.size_bytes
    assert last.total_bytes > needed
    tight = saves.save(words(1536), budget=needed)
    assert (tight.evicted, tight.total_bytes) == (0, needed)
    assert restored(store, saved, WINDOWS) == 1536
    assert store.usable_prefix(saved, WINDOWS, 700) == 0


def test_state_at_the_end_of_a_page_is_usable_there_only(store: PageStore) -> None:
    windows = (0, AT_END)
    saves = Saves(store, WINDOWED, windows)
    for length in (256, 512, 700):
        saved = find(store, saves.save(words(length)))
    assert restored(store, saved, windows) == 700
    assert store.usable_prefix(saved, windows, 699) == 512
    assert store.usable_prefix(saved, windows, 512) == 512
    assert store.usable_prefix(saved, windows, 511) == 256
    assert store.usable_prefix(saved, windows, 255) == 0
    assert restored(store, saved, windows, 600) == 512


# --- missing and damaged pages ------------------------------------------------------------------


def part_path(page: page_file.Page, group: int = 0) -> Path:
    return snapshots_folder() / "pages" / page_file.file_name(page.name, group)


def test_prefix_ends_before_a_missing_page(saves: Saves, store: PageStore) -> None:
    saved = find(store, saves.save(words(1000)))
    assert store.usable_prefix(saved, (0,), 600) == 600
    assert store.usable_prefix(saved, (0,), 5000) == 1000
    assert store.usable_prefix(saved, (0,), -1) == 0
    part_path(saved.pages[2]).unlink()
    assert restored(store, saved) == 512
    assert store.usable_prefix(saved, (0,), 100) == 100
    part_path(saved.pages[0]).unlink()
    assert restored(store, saved) == 0
    result = saves.save(words(1000))
    assert restored(store, find(store, result)) == 1000


def test_damaged_page_ends_the_restored_prefix_and_is_written_again(
    saves: Saves, store: PageStore
) -> None:
    saved = find(store, saves.save(words(1000)))
    path = part_path(saved.pages[2])
    whole = bytearray(path.read_bytes())
    whole[-500] ^= 1
    path.write_bytes(whole)
    assert store.usable_prefix(saved, (0,)) == 1000
    targets = [[memoryview(bytearray(1000))] for _ in saved.pages]
    reads = [PageRead(page, parts) for page, parts in zip(saved.pages, targets, strict=True)]
    good, error = store.read_pages(reads)
    assert good == 2
    assert isinstance(error, Damaged)
    assert [bytes(targets[at][0]) for at in (0, 1)] == [
        contents(KEY, words(1000), at, 0) for at in (0, 1)
    ]
    assert not path.exists()
    assert restored(store, saved) == 512
    again = saves.save(words(1000))
    assert again.bytes_written == path.stat().st_size + again.path.stat().st_size
    assert restored(store, saved) == 1000


def test_page_of_another_size_is_written_again(saves: Saves, store: PageStore) -> None:
    saved = find(store, saves.save(words(1000)))
    for spoil in (lambda size: size + 1, lambda size: size - 1, lambda size: 0):
        path = part_path(saved.pages[1])
        os.truncate(path, spoil(path.stat().st_size))
        assert store.usable_prefix(saved, (0,)) == 256
        saves.save(words(1000))
        assert restored(store, saved) == 1000


def test_no_pages_are_read_for_nothing(store: PageStore) -> None:
    assert store.read_pages([]) == (0, None)


def test_reading_can_be_cancelled_between_pages(saves: Saves, store: PageStore) -> None:
    saved = find(store, saves.save(words(5000)))
    calls = 0

    def cancel() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Cancelled

    targets = [bytearray(1000) for _ in saved.pages]
    reads = [PageRead(page, [memoryview(t)]) for page, t in zip(saved.pages, targets, strict=True)]
    with pytest.raises(Cancelled):
        store.read_pages(reads, cancel)
    assert [any(target) for target in targets] == [True] * 3 + [False] * 17


def test_group_without_a_target_is_not_read(store: PageStore) -> None:
    saved = find(store, Saves(store, WINDOWED, WINDOWS).save(words(100)))
    part_path(saved.pages[0], 0).unlink()
    target = bytearray(300)
    store.read_page(saved.pages[0], [None, memoryview(target)])
    assert target == contents(WINDOWED, words(100), 0, 1)
