"""Unpacking of wheels: what is refused, and that nothing of it is written outside the folder."""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import zipfile
from pathlib import Path

import pytest

from app.downloads.policy import DownloadError, Stopped
from app.downloads.unpacking import unpack, verify
from gpu_packages import FILES, TRITON, unpacked_bytes, wheel

MANY = 1 << 30


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def changed(content: bytes, **entries: bytes) -> bytes:
    """A wheel with more entries than its RECORD has, or others."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            if entry.filename not in entries:
                new.writestr(entry, old.read(entry))
        for name, body in entries.items():
            new.writestr(name, body)
    return made.getvalue()


def test_files_are_where_they_belong(tmp_path: Path) -> None:
    files = {
        **FILES,
        "torch/include/ATen.h": "header",
        "torch-2.13.0.data/purelib/torchgen/__init__.py": "",
    }
    for name, content in (wheel("torch", "2.13.0", files), wheel("triton", "3.7.1", TRITON)):
        unpack(written(tmp_path, name, content), tmp_path / "to", unpacked_bytes(content))
    made = {path.relative_to(tmp_path / "to").as_posix() for path in (tmp_path / "to").rglob("*")}
    assert {"torch/lib/libtorch_cuda.so", "torchgen/__init__.py"} <= made
    assert not any("include" in name or "scripts" in name for name in made)
    assert (tmp_path / "to/torch/__init__.py").read_text(encoding="utf-8") == FILES[
        "torch/__init__.py"
    ]
    assert verify(tmp_path / "to")
    if sys.platform != "win32":
        assert os.access(tmp_path / "to/triton/backends/nvidia/bin/ptxas", os.X_OK)


@pytest.mark.parametrize(
    "name",
    [
        *("../outside.py", "/outside.py", "torch/../../outside.py", "..\\outside.py"),
        *("C:/outside.py", ".. /outside.py", "torch/outside.py."),
    ],
)
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    file, content = wheel("torch", "2.13.0", {**FILES, name: "planted"})
    with pytest.raises(DownloadError, match="damaged"):
        unpack(written(tmp_path, file, content), tmp_path / "a/b/to", MANY)
    assert not list(tmp_path.rglob("*outside*"))


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    file, content = wheel("torch", "2.13.0", FILES)
    made = io.BytesIO(content)
    with zipfile.ZipFile(made, "a") as archive:
        link = zipfile.ZipInfo("torch/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DownloadError, match="torch/link"):
        unpack(written(tmp_path, file, made.getvalue()), tmp_path / "to", MANY)


@pytest.mark.parametrize(
    "entries",
    [
        {"torch/cuda.py": b"planted"},  # of another content
        {"torch/more.py": b"planted"},  # not in the RECORD
        {"torch-2.13.0.dist-info/RECORD": b"torch/cuda.py,sha256=abc,1\n"},
        {"torch-2.13.0.dist-info/RECORD": b"\xff\xfe"},
        {"other.dist-info/RECORD": b""},  # two of them
    ],
)
def test_a_file_without_its_hash_is_refused(tmp_path: Path, entries: dict[str, bytes]) -> None:
    file, content = wheel("torch", "2.13.0", FILES)
    with pytest.raises(DownloadError, match="damaged"):
        unpack(written(tmp_path, file, changed(content, **entries)), tmp_path / "to", MANY)


def test_files_larger_than_stated_are_refused_before_any_is_written(tmp_path: Path) -> None:
    file, content = wheel("torch", "2.13.0", FILES)
    with pytest.raises(DownloadError, match="larger than stated"):
        unpack(written(tmp_path, file, content), tmp_path / "to", unpacked_bytes(content) - 1)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("cut", [10, 1000, -30])
def test_a_cut_file_is_refused(tmp_path: Path, cut: int) -> None:
    file, content = wheel("torch", "2.13.0", FILES)
    with pytest.raises(DownloadError, match="damaged"):
        unpack(written(tmp_path, file, content[:cut]), tmp_path / "to", MANY)


def test_a_damaged_file_is_found_later(tmp_path: Path) -> None:
    file, content = wheel("torch", "2.13.0", FILES)
    unpack(written(tmp_path, file, content), tmp_path / "to", MANY)
    place = tmp_path / "to/torch/lib/libtorch_cuda.so"
    body = bytearray(place.read_bytes())
    body[1000] ^= 1
    place.write_bytes(body)
    assert not verify(tmp_path / "to")
    place.unlink()
    assert not verify(tmp_path / "to")
    assert not verify(tmp_path / "nothing")


@pytest.mark.parametrize("content", [b"", bytes(500)])
def test_a_list_of_files_that_a_power_cut_emptied_is_found(tmp_path: Path, content: bytes) -> None:
    for file, body in (wheel("torch", "2.13.0", FILES), wheel("triton", "3.7.1", TRITON)):
        unpack(written(tmp_path, file, body), tmp_path / "to", MANY)
    (tmp_path / "to/torch-2.13.0.dist-info/RECORD").write_bytes(content)
    assert not verify(tmp_path / "to")


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_wheel_is_an_error_of_one_sentence(tmp_path: Path, seed: int) -> None:
    file, content = wheel("torch", "2.13.0", FILES)
    body, chance = bytearray(content), random.Random(seed)
    for _ in range(20):
        body[chance.randrange(len(body))] = chance.randrange(256)
    with contextlib.suppress(DownloadError):  # damage of a time or comment changes nothing
        unpack(written(tmp_path, file, bytes(body)), tmp_path / "to", MANY)


def test_it_can_be_stopped(tmp_path: Path) -> None:
    file, content = wheel("torch", "2.13.0", FILES)

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        unpack(written(tmp_path, file, content), tmp_path / "to", MANY, stop)
