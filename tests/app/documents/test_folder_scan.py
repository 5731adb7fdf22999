"""Scan of folders: what is found, left out, unreadable, missing; links that lead around."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.documents import folder_scan
from app.documents.folder_scan import Difference, Scan, changed_at, difference, scan
from app.domain.collection import CollectionFile, FileState


class Watched:
    """Folders that are looked through again and again, and the devices that they seem to be on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *sources: Path) -> None:
        self.sources = [str(each) for each in sources]
        self.on: dict[Path, int] = {}
        self.devices: dict[str, int] = {}
        self.known: dict[str, CollectionFile] = {}
        usual = folder_scan._state
        stat = os.stat

        def seems(path: str, facts: os.stat_result) -> os.stat_result:
            for folder, device in self.on.items():
                if path == str(folder) or str(folder) in map(str, Path(path).parents):
                    names = ("st_mtime_ns", "st_ctime_ns", "st_file_attributes")
                    more = {name: getattr(facts, name) for name in names if hasattr(facts, name)}
                    return os.stat_result((*facts[:2], device, *facts[3:]), more)
            return facts

        monkeypatch.setattr(folder_scan, "_state", lambda entry: seems(entry.path, usual(entry)))
        monkeypatch.setattr(folder_scan, "_source_state", lambda path: seems(path, stat(path)))

    def look(self) -> tuple[Scan, Difference]:
        """Look through them, and learn what was found."""
        found = scan(self.sources)
        changes = difference(found, self.known, self.known.keys(), self.devices)
        for path in changes.gone:
            del self.known[path]
        for seen in changes.changed:
            self.known[seen.path] = CollectionFile(
                seen.path, seen.size, seen.modified, state=FileState.READY
            )
        self.devices |= {k: on for k, on in found.devices.items() if k not in found.emptied}
        return found, changes

    def names(self) -> list[str]:
        return sorted(Path(each).name for each in self.known)


def write(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_files_of_folders_and_single_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / name) for name in ("a/b/c.txt", "a/d.txt", "e.txt")]
    found = scan([str(tmp_path / "a"), str(tmp_path / "e.txt"), str(tmp_path / "a" / "b")])
    assert sorted(found.files) == sorted(map(str, paths))
    seen = found.files[str(paths[0])]
    assert (seen.size, seen.modified) == (4, changed_at(paths[0].stat()))
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
    inside, beside = str(gone / "a" / "b.txt"), str(tmp_path / "drives" / "b.txt")
    assert found.may_have([inside, beside]) == {inside: str(gone)}


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
    hidden, other = str(locked), str(tmp_path / "other.txt")
    assert found.may_have([hidden, other]) == {hidden: str(locked.parent)}


def test_no_more_than_the_limit(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.txt")
    found = scan([str(tmp_path)], most_files=3)
    assert len(found.files) == 3
    assert found.cut
    assert found.may_have([str(tmp_path / "4.txt")]) == {str(tmp_path / "4.txt"): ""}
    assert not scan([str(tmp_path)], most_files=5).cut


def test_changes_since_the_last_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / name)
    watched = Watched(monkeypatch, tmp_path)
    assert len(watched.look()[1].changed) == 3
    assert watched.look()[1].changed == []
    write(tmp_path / "a", "longer text")
    (tmp_path / "b").unlink()
    write(tmp_path / "d")
    changes = watched.look()[1]
    assert sorted(Path(each.path).name for each in changes.changed) == ["a", "d"]
    assert changes.gone == [str(tmp_path / "b")]
    assert watched.names() == ["a", "c", "d"]
    path = str(tmp_path / "c")
    watched.known[path] = replace(watched.known[path], state=FileState.WAITING)
    assert watched.look()[1].waiting == [path]


def test_the_folder_of_a_drive_that_was_taken_out_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path / "drive" / name) for name in ("a.txt", "b/c.txt")]
    watched = Watched(monkeypatch, tmp_path / "drive")
    watched.look()
    shutil.move(tmp_path / "drive", tmp_path / "away")
    (tmp_path / "drive").mkdir()
    for _ in range(2):
        found, changes = watched.look()
        assert found.emptied == [str(tmp_path / "drive")]
        assert changes.kept == {str(each): str(tmp_path / "drive") for each in paths}
        assert changes.gone == []
    (tmp_path / "drive").rmdir()
    shutil.move(tmp_path / "away", tmp_path / "drive")
    found, changes = watched.look()
    assert (found.emptied, changes.changed, changes.gone) == ([], [], [])


def test_what_lies_below_a_drive_that_was_taken_out_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may have files that are seen only while nothing is mounted on it."""
    write(tmp_path / "drive" / "a.txt")
    watched = Watched(monkeypatch, tmp_path / "drive")
    watched.on[tmp_path / "drive"] = 77
    watched.look()
    (tmp_path / "drive" / "a.txt").unlink()
    write(tmp_path / "drive" / "not mounted.txt")
    watched.on.clear()
    found, changes = watched.look()
    assert found.emptied == [str(tmp_path / "drive")]
    assert changes.gone == []
    assert watched.names() == ["a.txt", "not mounted.txt"]


@pytest.mark.parametrize("left", ["empty", "nothing"])
def test_a_drive_in_a_folder_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    write(tmp_path / "kept.txt")
    write(tmp_path / "usb" / "a.txt")
    watched = Watched(monkeypatch, tmp_path)
    watched.on[tmp_path / "usb"] = 77
    watched.look()
    shutil.rmtree(tmp_path / "usb")
    if left == "empty":
        (tmp_path / "usb").mkdir()
    watched.on.clear()
    found, changes = watched.look()
    assert found.emptied == [str(tmp_path / "usb")]
    assert changes.gone == []
    assert watched.names() == ["a.txt", "kept.txt"]


def test_folders_that_are_emptied_or_filled_anew_by_the_user_are_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "kept.txt")
    write(tmp_path / "letters" / "a.txt")
    watched = Watched(monkeypatch, tmp_path)
    watched.look()
    (tmp_path / "letters" / "a.txt").unlink()
    assert watched.look()[1].gone == [str(tmp_path / "letters" / "a.txt")]
    (tmp_path / "kept.txt").rename(tmp_path / "renamed.txt")
    found, changes = watched.look()
    assert (found.emptied, changes.gone) == ([], [str(tmp_path / "kept.txt")])


def test_other_numbers_of_devices_after_a_restart_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux numbers some drives anew whenever they are mounted."""
    for name in ("a.txt", "b.txt"):
        write(tmp_path / "usb" / name)
    watched = Watched(monkeypatch, tmp_path)
    watched.on[tmp_path / "usb"] = 77
    watched.look()
    watched.on[tmp_path / "usb"] = 78
    (tmp_path / "usb" / "a.txt").unlink()
    found, changes = watched.look()
    assert found.emptied == []
    assert changes.gone == [str(tmp_path / "usb" / "a.txt")]


def test_a_source_that_goes_while_it_is_read_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(tmp_path / "net" / str(number) / "a.txt")
    watched = Watched(monkeypatch, tmp_path / "net")
    watched.look()
    usual = os.scandir

    def ends(path: str) -> object:
        if Path(path).name == "1":
            (tmp_path / "net").rename(tmp_path / "away")
        return usual(path)

    monkeypatch.setattr(os, "scandir", ends)
    found, changes = watched.look()
    assert str(tmp_path / "net") in found.missing
    assert changes.gone == []
    assert len(watched.known) == 3


def test_folders_to_be_left_out_are_found_by_what_they_are(tmp_path: Path) -> None:
    own = tmp_path / "home" / "data"
    (own / "inside").mkdir(parents=True)
    (own / "inside" / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / "b.txt").write_text("b", encoding="utf-8")
    links = os.name != "nt"  # they need rights there
    if links:
        (tmp_path / "link").symlink_to(own, target_is_directory=True)
    found = scan([str(tmp_path)], without=[own, tmp_path / "not there"])
    assert list(found.files) == [str(tmp_path / "b.txt")]
    assert found.left_out == 1 + links
