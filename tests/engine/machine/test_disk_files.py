"""Changes of files: tried again while they are open elsewhere, for a limited time, whole or not."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from busy_files import BusyFiles, refusal
from engine.machine import disk_files


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> BusyFiles:
    return BusyFiles(monkeypatch)


def test_a_change_is_tried_again_while_the_file_is_open(tmp_path: Path, busy: BusyFiles) -> None:
    (path := tmp_path / "model").write_bytes(b"old")
    busy.hold(path)
    disk_files.write(path, [b"n", memoryview(b"ew")])
    assert path.read_bytes() == b"new"
    busy.hold(path)
    disk_files.rename(path, moved := tmp_path / "moved")
    busy.hold(moved)
    disk_files.delete(moved)
    assert busy.refusals == 9
    assert not list(tmp_path.iterdir())


def test_a_file_that_stays_open_is_an_error_after_the_limit(
    tmp_path: Path, busy: BusyFiles
) -> None:
    (path := tmp_path / "list").write_bytes(b"old")
    busy.hold(path, 1_000_000)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    with pytest.raises(PermissionError):
        disk_files.replace(_written(tmp_path / "new"), path, seconds=0.2, pause=pause)
    assert 0.01 < sum(pauses) <= 0.2
    assert path.read_bytes() == b"old"


def test_the_sleep_of_the_computer_is_not_counted_as_waiting(
    tmp_path: Path, busy: BusyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 10**9, 3600))  # a clock that counts it: an hour between two looks
    monkeypatch.setattr(time, "monotonic", lambda: float(next(times)))
    busy.hold(path := _written(tmp_path / "model"))
    disk_files.delete(path)
    assert not path.exists()


def test_waiting_can_be_stopped(tmp_path: Path, busy: BusyFiles) -> None:
    busy.hold(source := _written(tmp_path / "part"), 1_000_000)

    class Stopped(Exception):
        pass

    def stop(seconds: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        disk_files.replace(source, tmp_path / "model", pause=stop)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "x"), PermissionError(1, "x"), refusal(3)])
def test_other_errors_are_raised_at_once(error: OSError) -> None:
    calls: list[int] = []

    def change() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        disk_files.retried(change)
    assert len(calls) == 1


@pytest.mark.parametrize("winerror", [5, 32, 33, 145, 303, 1224])
def test_the_errors_of_an_open_file_are_known(winerror: int) -> None:
    assert disk_files.is_busy(refusal(winerror))


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = _written(tmp_path / "list")

    def pieces():
        yield b"half"
        raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="space"):
        disk_files.write(path, pieces(), temporary="list.new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["list"]


def test_a_left_temporary_file_is_replaced(tmp_path: Path) -> None:
    _written(tmp_path / "list.new")
    assert disk_files.write(tmp_path / "list", [b"12", b"345"], temporary="list.new") == 5
    assert [each.name for each in tmp_path.iterdir()] == ["list"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such rights")
def test_only_its_owner_reads_a_written_file(tmp_path: Path) -> None:
    disk_files.write(path := tmp_path / "keys", [b"secret"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_marked_as_read_only_is_deleted(tmp_path: Path) -> None:
    _written(path := tmp_path / "model").chmod(stat.S_IREAD)
    disk_files.delete(path)
    disk_files.delete(path)
    assert not path.exists()
    _written(path).chmod(stat.S_IREAD)
    disk_files.write(path, [b"new"])
    assert path.read_bytes() == b"new"


def test_a_folder_is_deleted_with_all_in_it(tmp_path: Path, busy: BusyFiles) -> None:
    (folder := tmp_path / "old" / "inner").mkdir(parents=True)
    _written(folder / "model").chmod(stat.S_IREAD)
    disk_files.delete_folder(tmp_path / "old")
    disk_files.delete_folder(tmp_path / "old")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="links need a permission there")
def test_a_link_to_a_folder_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (link := tmp_path / "link").symlink_to(tmp_path / "models")
    with pytest.raises(OSError, match="symbolic link"):
        disk_files.delete_folder(link)
    assert link.is_symlink()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (inner := tmp_path / "old" / "inner").mkdir(parents=True)
    inner.chmod(0)
    try:
        with pytest.raises(PermissionError):
            disk_files.delete_folder(tmp_path / "old")
    finally:
        inner.chmod(0o700)


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere an open file can be deleted")
def test_an_open_file_is_deleted_once_it_is_closed(tmp_path: Path) -> None:
    file = _written(path := tmp_path / "part").open("rb")
    with pytest.raises(PermissionError) as caught:
        os.unlink(path)
    assert disk_files.is_busy(caught.value)
    closing = threading.Timer(0.3, file.close)
    closing.start()
    disk_files.delete(path)
    closing.join()
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere an open file can be opened again")
def test_a_file_that_nobody_may_open_is_read_once_it_is_closed(tmp_path: Path) -> None:
    """As while it is being replaced, or read by a virus scanner."""
    path = _written(tmp_path / "settings.json")
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.CreateFileW.restype = ctypes.c_void_p
    held = ctypes.c_void_p(kernel.CreateFileW(str(path), 0x80000000, 0, None, 3, 0, None))
    closing = threading.Timer(0.3, kernel.CloseHandle, [held])
    with pytest.raises(PermissionError) as caught:
        path.read_bytes()
    assert disk_files.is_busy(caught.value)
    closing.start()
    assert disk_files.read_bytes(path) == b"old"
    closing.join()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (r"C:\Users\me\model.gguf", r"C:\Users\me\model.gguf"),
        ("C:\\" + "d" * 250, "\\\\?\\C:\\" + "d" * 250),
        ("\\\\nas\\share\\" + "d" * 250, "\\\\?\\UNC\\nas\\share\\" + "d" * 250),
        ("\\\\?\\C:\\" + "d" * 250, "\\\\?\\C:\\" + "d" * 250),
    ],
)
def test_long_paths_are_marked_on_windows(path: str, wanted: str) -> None:
    class Named(type(Path())):  # a path of Windows, also elsewhere
        def __str__(self) -> str:
            return path

    assert disk_files.system_path(Named(), "win32") == wanted
    assert disk_files.system_path(Named(), "linux") == path


def test_files_in_deep_folders_are_written_read_and_deleted(tmp_path: Path) -> None:
    folder = tmp_path
    while len(str(folder)) < 400:
        folder /= "a folder with a name of some length"
    disk_files.make_folder(folder)
    disk_files.write(path := folder / "model.gguf", [b"GGUF"])
    assert disk_files.read_bytes(path) == b"GGUF"
    disk_files.replace(path, other := folder / "other.gguf")
    disk_files.delete(other)
    with pytest.raises(FileNotFoundError):
        disk_files.read_bytes(other)


def _written(path: Path) -> Path:
    path.write_bytes(b"old")
    return path
