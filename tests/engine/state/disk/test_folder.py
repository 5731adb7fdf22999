"""Snapshot folder functions of the window: size and deletion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine import delete_snapshots, snapshots_folder, snapshots_size
from engine.state.disk.atomic import folder_lock
from engine.state.disk.sequence_file import conversation_prefix
from engine.state.disk.store import PageStore
from saved_pages import Saves, find, restored


@pytest.fixture
def saves() -> Saves:
    return Saves(PageStore(snapshots_folder()))


def test_missing_folder_is_empty() -> None:
    assert (snapshots_size(), delete_snapshots(), delete_snapshots(["1"])) == (0, 0, 0)
    assert not snapshots_folder().exists()


def test_all_snapshots_are_counted_and_deleted(saves: Saves) -> None:
    saves.save(range(600), "1")
    size = saves.save(range(700), "2").total_bytes
    assert snapshots_size() == size
    unfinished = snapshots_folder() / "pages" / ".x.page.00ff00ff.tmp"
    unfinished.write_bytes(bytes(50))
    other = snapshots_folder() / "notes.txt"
    other.touch()
    assert delete_snapshots() == size + 50
    assert snapshots_size() == 0
    left = {path for path in snapshots_folder().rglob("*") if path.is_file()}
    pages = snapshots_folder() / "pages"
    assert left == {other, pages / ".lock", pages / ".deletions"}
    assert saves.store.sequences() == []
    saves.save(range(600), "1")


def test_only_snapshots_of_the_given_conversations_and_their_pages_are_deleted(
    saves: Saves,
) -> None:
    sizes = [saves.save(range(600), "1").bytes_written]
    shared = saves.save([*range(512), 9, 9], "2")
    sizes.append(shared.bytes_written)
    sizes.append(saves.save([3] * 10, "11").bytes_written)
    assert delete_snapshots(["unknown"]) == delete_snapshots([]) == 0
    freed = delete_snapshots(["1"])
    assert 0 < freed < sizes[0], "two pages are shared"
    assert snapshots_size() == sum(sizes) - freed
    assert restored(saves.store, find(saves.store, shared)) == 514
    assert delete_snapshots(["2", "11"]) == sum(sizes) - freed
    assert snapshots_size() == 0


def test_files_of_older_versions_are_counted_and_deleted() -> None:
    snapshots_folder().mkdir(parents=True)
    for conversation, size in (("1", 100), ("2", 20)):
        name = f"{conversation_prefix(conversation)}-{'0' * 32}.safetensors"
        (snapshots_folder() / name).write_bytes(bytes(size))
    assert snapshots_size() == 120
    assert delete_snapshots(["1"]) == 100
    assert delete_snapshots() == 20


def test_deletion_waits_for_a_save_only_for_a_while(
    saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves.save(range(600), "1")
    saves.save(range(100), "2")
    monkeypatch.setattr("engine.state.disk.folder._WAIT_SECONDS", 0.05)
    pages = snapshots_folder() / "pages"
    with folder_lock(pages, exclusive=False, seconds=0):
        delete_snapshots(["1"])
        assert len(saves.store.sequences()) == 1
        assert len(list(pages.glob("*.page"))) == 4, "another process may need these"
        assert delete_snapshots() > 0
        assert snapshots_size() == 0


def test_the_window_needs_no_torch() -> None:
    code = "import sys, engine; engine.snapshots_size(); print('torch' in sys.modules)"
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
