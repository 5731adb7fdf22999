"""Locks on files: shared or exclusive, of threads and processes alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.machine.file_lock import FileLock, FileLockHeld, try_lock


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(3)]
    yield opened
    for each in opened:
        os.close(each)


def test_shared_locks_exclude_an_exclusive_one(files: list[int]) -> None:
    assert try_lock(files[0], exclusive=False)
    assert try_lock(files[1], exclusive=False)
    assert not try_lock(files[2], exclusive=True)


def test_an_exclusive_lock_excludes_all_others(files: list[int]) -> None:
    assert try_lock(files[0], exclusive=True)
    assert not try_lock(files[1], exclusive=False)
    assert not try_lock(files[2], exclusive=True)


def test_a_locked_file_can_be_read_and_written_by_others(tmp_path: Path) -> None:
    (path := tmp_path / "lock").write_bytes(b"contents")
    lock = FileLock(path)
    assert path.read_bytes() == b"contents"
    path.write_bytes(b"other")
    with pytest.raises(FileLockHeld):
        FileLock(path)
    lock.release()
    lock.release()
    FileLock(path).release()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from engine.machine.file_lock import FileLock;"
        "lock = FileLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.readline();"
        "os._exit(1)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path := tmp_path / "lock")],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    assert other.stdout.readline().strip() == b"locked"
    with pytest.raises(FileLockHeld):
        FileLock(path)
    other.communicate(b"\n")
    FileLock(path).release()
