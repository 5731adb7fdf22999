"""Scan of folders: what is found, left out, unreadable, missing; links that lead around."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.documents.folder_scan import scan


def write(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_files_of_folders_and_single_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / name) for name in ("a/b/c.txt", "a/d.txt", "e.txt")]
    found = scan([str(tmp_path / "a"), str(tmp_path / "e.txt"), str(tmp_path / "a" / "b")])
    assert sorted(found.files) == sorted(map(str, paths))
    seen = found.files[str(paths[0])]
    assert (seen.size, seen.modified) == (4, paths[0].stat().st_mtime_ns)
    assert sorted(found.folders) == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert found.left_out == 1  # a/b a second time


def test_what_nobody_means_is_left_out_and_counted(tmp_path: Path) -> None:
    kept = write(tmp_path / "kept.txt")
    for name in (".git/config", "node_modules/x/y.js", ".hidden.txt", "~$letter.docx"):
        write(tmp_path / name)
    found = scan([str(tmp_path)])
    assert list(found.files) == [str(kept)]
    assert found.left_out == 4


def test_a_source_that_is_hidden_is_meant(tmp_path: Path) -> None:
    kept = write(tmp_path / ".notes" / "a.txt")
    assert list(scan([str(tmp_path / ".notes")]).files) == [str(kept)]


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_lead_nowhere_twice(tmp_path: Path) -> None:
    write(tmp_path / "a" / "one.txt")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    (tmp_path / "a" / "nothing").symlink_to(tmp_path / "not there")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    found = scan([str(tmp_path)])
    assert [Path(each).name for each in found.files] == ["one.txt"]
    assert not found.missing


@pytest.mark.skipif(os.name == "nt", reason="a pipe is a file")
def test_pipes_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not scan([str(tmp_path)]).files
    assert scan([str(tmp_path / "pipe")]).missing == [str(tmp_path / "pipe")]


def test_what_is_not_there_may_have_files(tmp_path: Path) -> None:
    gone = tmp_path / "drive"
    found = scan([str(gone), str(tmp_path), "\0"])
    assert found.missing == [str(gone), "\0"]
    assert found.may_have(str(gone / "a" / "b.txt"))
    assert not found.may_have(str(tmp_path / "drives" / "b.txt"))


def test_a_folder_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, locked = write(tmp_path / "kept.txt"), write(tmp_path / "locked" / "a.txt")
    usual = os.scandir

    def refuses(path: str) -> object:
        if path == str(locked.parent):
            raise PermissionError(13, "Permission denied")
        return usual(path)

    monkeypatch.setattr(os, "scandir", refuses)
    found = scan([str(tmp_path)])
    assert list(found.files) == [str(kept)]
    assert found.unreadable == {str(locked.parent): "Permission denied"}
    assert found.may_have(str(locked))
    assert not found.may_have(str(tmp_path / "other.txt"))


def test_no_more_than_the_limit(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.txt")
    found = scan([str(tmp_path)], most_files=3)
    assert len(found.files) == 3
    assert found.cut
    assert found.may_have(str(tmp_path / "4.txt"))
    assert not scan([str(tmp_path)], most_files=5).cut
