"""Snapshot store: longest prefix search, superseded prefixes, LRU eviction, damaged files."""

from __future__ import annotations

import itertools
import os
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine import RequestError, SnapshotError, snapshots_folder, snapshots_size
from engine.snapshot import file as snapshot_file
from engine.snapshot.file import Data
from engine.snapshot.store import Saved, Snapshots, best, check_budget

KEY = ("a" * 64, "", "f16")
PLENTY = 1 << 40


def ids(*tokens: int) -> bytes:
    return array("i", tokens).tobytes()


def writing(token_bytes: bytes, key: tuple[str, ...] = KEY, size: int = 0) -> Callable[[Path], int]:
    """A function that writes a small file with these tokens and `size` bytes of padding."""
    count = len(token_bytes) // 4
    names = dict(zip(("model_sha256", "stack", "cache"), key, strict=True))
    data = [
        Data("tokens", "I32", (count,), [memoryview(token_bytes)]),
        Data("anything", "U8", (size,), [memoryview(bytes(size))]),
    ]
    return lambda path: snapshot_file.write(path, {**names, "tokens": str(count)}, data)


def save(
    folder: Snapshots,
    *tokens: int,
    conversation: str = "one",
    key: tuple[str, ...] = KEY,
    size: int = 0,
    budget: int = PLENTY,
) -> tuple[Path, int]:
    """Save a snapshot; returns its path and the number of evicted files."""
    token_bytes = ids(*tokens)
    path, written, evicted = folder.save(
        conversation=conversation,
        key=key,
        token_bytes=token_bytes,
        budget_bytes=budget,
        write=writing(token_bytes, key, size),
    )
    assert path.stat().st_size == written
    return path, evicted


def age(path: Path, seconds: int) -> None:
    """Set the last use of a file this many seconds earlier."""
    then = path.stat().st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(then, then))


@pytest.fixture
def folder() -> Snapshots:
    return Snapshots(snapshots_folder())


def shared_length(prompt: list[int]) -> Callable[[Sequence[int]], int]:
    """A function that counts the tokens a file shares with the beginning of the prompt."""

    def count(tokens: Sequence[int]) -> int:
        pairs = zip(prompt, tokens, strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    return count


def test_missing_folder_has_no_snapshots(folder: Snapshots) -> None:
    assert folder.all() == []
    assert snapshots_size() == 0
    assert best([], shared_length([1])) is None


def test_the_longest_prefix_is_found_and_the_last_used_among_equals(folder: Snapshots) -> None:
    short, _ = save(folder, 1, 2, 9)
    long, _ = save(folder, 1, 2, 3, 9, 9)
    other, _ = save(folder, 7, 8)
    found = best(folder.all(), shared_length([1, 2, 3, 4]))
    assert found is not None
    assert (found[0].path, found[1]) == (long, 3)
    age(long, 60)
    found = best(folder.all(), shared_length([1, 2]))
    assert found is not None
    assert (found[0].path, found[1]) == (short, 2)
    assert best(folder.all(), shared_length([5])) is None
    assert (
        best([saved for saved in folder.all() if saved.path == other], shared_length([1])) is None
    )


def test_save_deletes_snapshots_that_are_prefixes_of_the_new_one(folder: Snapshots) -> None:
    superseded = [save(folder, 1, 2)[0], save(folder, 1, 2, 3, conversation="two")[0]]
    kept = [
        save(folder, 1, 2, key=("b" * 64, "", "f16"))[0],
        save(folder, 1, 2, key=("a" * 64, "stack", "f16"))[0],
        save(folder, 1, 2, key=("a" * 64, "", "f32"))[0],
        save(folder, 1, 2, 9)[0],
        save(folder, 1, 2, 3, 4, 5)[0],  # longer
    ]
    new, evicted = save(folder, 1, 2, 3, 4)
    assert evicted == 0
    assert not any(path.exists() for path in superseded)
    assert all(path.exists() for path in [*kept, new])


def test_one_long_conversation_keeps_one_file(folder: Snapshots) -> None:
    for length in range(1, 30):
        save(folder, *range(length))
    assert len(folder.all()) == 1


def test_tokens_that_share_only_some_bytes_are_not_a_prefix(folder: Snapshots) -> None:
    path, _ = save(folder, 1, 256)
    save(folder, 1, 256 * 256 * 256 + 256, 5)
    assert path.exists()


def test_eviction_is_least_recently_used_and_keeps_the_new_snapshot(folder: Snapshots) -> None:
    paths = [save(folder, number, size=10_000)[0] for number in range(5)]
    for number, path in enumerate(paths):
        age(path, 100 - number)
    folder.touch(next(saved for saved in folder.all() if saved.path == paths[0]))
    new, evicted = save(folder, 99, size=10_000, budget=35_000)
    assert evicted == 3
    assert [path.exists() for path in paths] == [True, False, False, False, True]
    assert new.exists()
    assert snapshots_size() <= 35_000


def test_new_snapshot_above_the_budget_is_kept(folder: Snapshots) -> None:
    save(folder, 1, size=10_000)
    new, evicted = save(folder, 2, size=10_000, budget=1)
    assert evicted == 1
    assert [saved.path for saved in folder.all()] == [new]


def test_a_session_above_the_budget_is_refused_with_figures() -> None:
    check_budget(5, 5)
    with pytest.raises(RequestError, match=r"takes 2,000 MB.* is 1,000 MB"):
        check_budget(2_000_000_000, 1_000_000_000)


def test_other_files_are_neither_counted_nor_deleted(folder: Snapshots) -> None:
    save(folder, 1)
    other = snapshots_folder() / "notes.txt"
    other.write_text("mine")
    save(folder, 2, budget=1)
    assert other.exists()
    assert len(folder.all()) == 1


def test_damaged_files_are_listed_with_their_fault_and_evicted(
    folder: Snapshots,
) -> None:
    path, _ = save(folder, 1, 2)
    path.write_bytes(b"\xff" * 1000)
    (saved,) = folder.all()
    assert isinstance(saved.fault, SnapshotError)
    assert saved.belongs_to("one")
    assert not saved.belongs_to("two")
    age(path, 60)
    assert save(folder, 3, budget=1)[1] == 1
    assert not path.exists()


def test_header_is_cached_until_the_file_changes(folder: Snapshots) -> None:
    path, _ = save(folder, 1, 2)
    (first,) = folder.all()
    assert folder.all()[0] is first
    folder.touch(first)
    (touched,) = folder.all()
    assert touched.used_ns > first.used_ns
    size = path.stat().st_size
    path.write_bytes(b"\xff" * size)
    os.utime(path, ns=(touched.used_ns + 1, touched.used_ns + 1))
    assert folder.all()[0].fault is not None


def test_file_with_invalid_tokens_is_listed_with_a_fault(folder: Snapshots) -> None:
    path, _ = save(folder, 1, 2)
    for tokens, kind in (("x", "I32"), ("9" * 20, "I32"), ("2", "F32")):
        data = Data("tokens", kind, (2,), [memoryview(ids(1, 2))])
        snapshot_file.write(path, {"tokens": tokens}, [data])
        assert folder.all()[0].fault is not None
    snapshot_file.write(path, {"tokens": "2"}, [])
    assert folder.all()[0].fault is not None


def test_temporary_files_of_crashed_writers_are_deleted_unless_locked() -> None:
    path = snapshots_folder() / "x.safetensors"
    path.parent.mkdir(parents=True)
    left = path.parent / f".{path.name}.00ff00ff.tmp"
    left.write_bytes(b"half a file")
    assert snapshots_size() == len(b"half a file")
    Snapshots(snapshots_folder())
    assert not left.exists()
    began, go = threading.Event(), threading.Event()

    def slow(target: Path) -> int:
        with (target.parent / f".{target.name}.11ff11ff.tmp").open("xb") as file:
            snapshot_file.lock(file)
            began.set()
            assert go.wait(60)
        return 0

    writer = threading.Thread(target=slow, args=(path,))
    writer.start()
    assert began.wait(60)
    Snapshots(snapshots_folder())
    assert len(list(path.parent.glob(".*.tmp"))) == 1
    go.set()
    writer.join()
    Snapshots(snapshots_folder())
    assert not list(path.parent.glob(".*.tmp"))


def test_remove_leftovers_can_be_limited_to_one_file(tmp_path: Path) -> None:
    mine, other = tmp_path / ".a.bin.0011.tmp", tmp_path / ".ab.bin.0011.tmp"
    mine.write_bytes(b"123")
    other.write_bytes(b"12345")
    assert snapshot_file.remove_leftovers(tmp_path, "a.bin") == 3
    assert not mine.exists()
    assert other.exists()
    assert snapshot_file.remove_leftovers(tmp_path / "nowhere") == 0


def test_files_deleted_by_others_are_tolerated(folder: Snapshots) -> None:
    path, _ = save(folder, 1)
    (saved,) = folder.all()
    path.unlink()
    folder.touch(saved)
    assert folder.delete(saved)
    assert folder.all() == []
    save(folder, 2)


def test_file_names_do_not_reveal_the_conversation(folder: Snapshots) -> None:
    path, _ = save(folder, 1, conversation="../secret plans \ud800")
    assert "secret" not in path.name
    assert path.parent == snapshots_folder()
    assert folder.all()[0].belongs_to("../secret plans \ud800")
    assert isinstance(folder.all()[0], Saved)
