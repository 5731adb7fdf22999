"""Known files of collections: kept, forgotten, and made anew from a damaged file."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.documents.known_files import KnownFiles
from app.domain.collection import CollectionFile, FileState
from app.domain.documents import PageUnit

ONE = CollectionFile("/a/b.pdf", 5, 7, "a" * 64, FileState.READY, "10 2", PageUnit.PAGE)
TWO = CollectionFile("/a/c", 0, 9, fault="damaged", detail="why", state=FileState.FAILED)


def test_files_are_kept_and_forgotten(tmp_path: Path) -> None:
    with closing(KnownFiles(tmp_path / "x" / "files.sqlite", 1)) as known:
        assert known.read() == {}
        known.write([ONE, TWO])
    with closing(KnownFiles(tmp_path / "x" / "files.sqlite", 1)) as known:
        assert known.read() == {ONE.path: ONE, TWO.path: TWO}
        known.write([], [TWO.path, "/not there"])
        assert known.read() == {ONE.path: ONE}
    with closing(KnownFiles(tmp_path / "x" / "files.sqlite", 2)) as known:
        assert known.read() == {}  # by other readers


@pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    odd = CollectionFile(os.fsdecode(b"/a/\xff.txt"), 1, 2, detail="\udcff")
    with closing(KnownFiles(tmp_path / "files.sqlite", 1)) as known:
        known.write([odd])
        assert list(known.read()) == [odd.path]


@pytest.mark.parametrize("content", [b"no database" * 500, b""])
def test_a_damaged_file_is_made_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert not caplog.records
    path = tmp_path / "files.sqlite"
    path.write_bytes(content)
    with closing(KnownFiles(path, 1)) as known:
        assert known.read() == {}
        known.write([ONE])
    with closing(KnownFiles(path, 1)) as known:
        assert known.read() == {ONE.path: ONE}


def test_without_a_file_they_are_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with closing(KnownFiles(tmp_path / "file" / "files.sqlite", 1)) as known:
        known.write([ONE])
        assert known.read() == {ONE.path: ONE}
    assert caplog.records
