"""Direct files: any range is read right, past the cache or not, and ends are errors."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from engine.machine import direct_file
from engine.machine.direct_file import DirectFile, ReadBuffer, read_speed

SIZE = 3 * 4_096 + 123  # no whole number of blocks


@pytest.fixture
def data() -> bytes:
    return np.random.default_rng(5).integers(0, 256, SIZE, dtype=np.uint8).tobytes()


@pytest.fixture(params=["direct", "cached", "refused at a read"])
def path(
    request: pytest.FixtureRequest, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A file on a file system with direct reads, one without, and one that only opens them."""
    if request.param == "cached":
        monkeypatch.setattr(direct_file, "_direct_flag", lambda: 0)
    if request.param == "refused at a read" and hasattr(os, "preadv"):
        right = os.preadv

        def refusing(file: int, buffers: list[memoryview], offset: int) -> int:
            import fcntl

            if fcntl.fcntl(file, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0):
                raise OSError(errno.EINVAL, "no direct reads")
            return right(file, buffers, offset)

        monkeypatch.setattr(os, "preadv", refusing)
    path = tmp_path / "file"
    path.write_bytes(data)
    return path


def test_any_range_is_read(path: Path, data: bytes) -> None:
    file, buffer = DirectFile(path), ReadBuffer(SIZE)
    for offset in (0, 1, 4_095, 4_096, 4_097, 9_000, SIZE - 1):
        for size in (1, 100, 4_096, 5_000, SIZE):
            if offset + size <= SIZE:
                found = file.read(offset, size, buffer).tobytes()
                assert found == data[offset : offset + size], (offset, size)
    file.close()


def test_threads_read_one_file(path: Path, data: bytes) -> None:
    file = DirectFile(path)

    def read(start: int) -> bool:
        found = file.read(start, 2_000, ReadBuffer(2_000))
        return found.tobytes() == data[start : start + 2_000]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(0, SIZE - 2_000, 97)))
    file.close()


def test_reading_past_the_end_is_an_error(path: Path) -> None:
    file, buffer = DirectFile(path), ReadBuffer(SIZE + 9_000)
    for offset, size in ((0, SIZE + 1), (SIZE - 1, 2), (SIZE, 1), (SIZE + 5_000, 10)):
        with pytest.raises(EOFError, match="ends at byte"):
            file.read(offset, size, buffer)
    file.close()
    file.close()  # a second time changes nothing


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectFile(tmp_path / "none")


def test_the_speed_of_a_disk_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_file, "_speeds", {})
    tiny = tmp_path / "tiny"
    tiny.write_bytes(b"x" * 100)
    assert read_speed(tiny) == 0.0
    assert read_speed(tmp_path / "none") == 0.0
    large = tmp_path / "large"
    large.write_bytes(bytes(9 << 20))
    speed = read_speed(large)
    assert speed > 0.0
    assert read_speed(large) == speed
    assert read_speed(tiny) == speed  # of the disk, not of the file
