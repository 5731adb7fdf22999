"""Scan of folders: the files in them, without what nobody means, and how they have changed.

Hidden files and folders, and those that hold other programs' copies (such as `node_modules`), are
left out and counted. A folder is read once, whatever links lead to it.

What cannot be read may still be there. So may the files of a drive of which only the folder is left
that it was mounted on: of a source, or of a folder that was on another device than the one above it,
all files that were known are gone at once, and it is empty or on another device now.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from app.domain.collection import CollectionFile, FileState
from engine import disk_files

MOST_FILES = 100_000  # of a scan
_COPIES = frozenset(("node_modules", "__pycache__", "$RECYCLE.BIN", "System Volume Information"))
_TEMPORARY = ("~$", ".~")  # how names of lock files of office programs begin
_HIDDEN = 0x2  # FILE_ATTRIBUTE_HIDDEN of Windows


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as a scan sees it."""

    path: str
    size: int  # bytes
    modified: int  # as `changed_at` has it


@dataclass(slots=True)
class Scan:
    """What a scan found."""

    files: dict[str, SeenFile] = field(default_factory=dict[str, SeenFile])  # by path
    folders: list[str] = field(default_factory=list[str])  # that were read
    left_out: int = 0  # hidden files and folders, and links to what is there already
    unreadable: dict[str, str] = field(default_factory=dict[str, str])  # reasons by path
    missing: list[str] = field(default_factory=list[str])  # sources that are not there
    cut: bool = False  # there are more files than may be
    # Devices of the sources, and of folders that are on another one than the folder above them.
    devices: dict[str, int] = field(default_factory=dict[str, int])
    emptied: list[str] = field(default_factory=list[str])  # see above; found by `difference`

    def may_have(self, paths: Iterable[str]) -> dict[str, str]:
        """Of files that were not found, those that may still be there; by path, what hides it.

        A folder or file that could not be read, or "" where there are more files than may be.
        """
        lost = {*self.missing, *self.unreadable, *self.emptied}
        if not lost and not self.cut:
            return {}
        found = ((path, next((each for each in _up(path) if each in lost), None)) for path in paths)
        return {path: each or "" for path, each in found if each or self.cut}


@dataclass(frozen=True, slots=True)
class Difference:
    """How a scan differs from what was known."""

    paths: frozenset[str]  # of all files that were found
    changed: list[SeenFile]  # new files, and those with another size or time
    waiting: list[str]  # files as they were that are not read yet
    gone: list[str]
    kept: dict[str, str]  # not found, but they may still be there: what hides it, by path


def scan(
    sources: Iterable[str],
    cancelled: Callable[[], bool] = lambda: False,
    most_files: int = MOST_FILES,
    without: Iterable[Path] = (),
) -> Scan:
    """The files of folders and single files, which are absolute paths; blocks.

    `cancelled` is asked before each folder, and the folders of `without` are left out.
    """
    found = Scan()
    seen = set(_identities(without))  # of folders
    folders: dict[str, os.stat_result] = {}
    for source in sources:
        try:
            facts = _source_state(source)
        except (OSError, ValueError):
            found.missing.append(source)
            continue
        if S_ISDIR(facts.st_mode):
            folders[source] = facts
            _scan_folders(source, facts, found, seen, cancelled, most_files)
        elif S_ISREG(facts.st_mode):
            _add(found, source, facts, most_files)
        else:
            found.missing.append(source)
    for source, facts in folders.items():
        if not _is_still(source, facts):  # its drive went meanwhile
            found.missing.append(source)
    return found


def difference(
    found: Scan,
    known: Mapping[str, CollectionFile],
    before: Collection[str],
    devices: Mapping[str, int],
) -> Difference:
    """How a scan differs from the files that are known by their paths; sets `found.emptied`.

    `before` are the paths that belonged to these sources so far, and `devices` those of their
    folders, as the scans had them.
    """
    changed: list[SeenFile] = []
    waiting: list[str] = []
    for path, seen in found.files.items():
        file = known.get(path)
        if file is None or (file.size, file.modified) != (seen.size, seen.modified):
            changed.append(seen)
        elif file.state is FileState.WAITING:
            waiting.append(path)
    missing = sorted(path for path in before if path not in found.files)
    if missing:
        found.emptied[:] = _emptied(found, missing, before, devices)
    kept = found.may_have(missing)
    gone = [path for path in missing if path not in kept]
    return Difference(frozenset(found.files), changed, waiting, gone, kept)


def changed_at(facts: os.stat_result) -> int:
    """When a file was changed, in nanoseconds since 1970.

    Also when another one was put in its place, with the time that this had (not so on Windows).
    """
    return max(facts.st_mtime_ns, facts.st_ctime_ns)


def is_in(path: str, folder: str) -> bool:
    """Whether a path is that of a folder or file, or inside of it."""
    return path == folder or path.startswith(inside(folder))


def inside(folder: str) -> str:
    """How paths in a folder begin."""
    return str(Path(folder)).rstrip(os.sep) + os.sep


def _up(path: str) -> Iterator[str]:
    """A path, and those of the folders that it is in."""
    yield path
    above = os.path.dirname(path)
    while above != path:
        yield above
        path, above = above, os.path.dirname(above)


def _emptied(
    found: Scan, missing: list[str], before: Collection[str], devices: Mapping[str, int]
) -> list[str]:
    """The folders that look as if their drive had been taken out, the outer ones only."""
    made: list[str] = []
    for folder in sorted({*devices, *found.devices}, key=len):
        start = inside(folder)
        gone = sum(path.startswith(start) for path in missing)
        if not gone or any(is_in(folder, each) for each in (*made, *found.missing)):
            continue
        if gone != sum(path.startswith(start) for path in before):
            continue
        moved = folder in devices and devices[folder] != found.devices.get(folder)
        if moved or not any(path.startswith(start) for path in found.files):
            made.append(folder)
    return made


def _is_still(folder: str, facts: os.stat_result) -> bool:
    try:
        now = _source_state(folder)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (facts.st_dev, facts.st_ino)


def _scan_folders(
    source: str,
    facts: os.stat_result,
    found: Scan,
    seen: set[tuple[int, int]],
    cancelled: Callable[[], bool],
    most_files: int,
) -> None:
    waiting = [(source, facts)]
    found.devices[source] = facts.st_dev
    while waiting and not found.cut and not cancelled():
        folder, facts = waiting.pop()
        identity = facts.st_dev, facts.st_ino
        if facts.st_ino and identity in seen:
            found.left_out += 1
            continue
        seen.add(identity)
        try:
            with os.scandir(disk_files.system_path(Path(folder))) as entries:
                listed = sorted(entries, key=lambda each: each.name)
        except OSError as error:
            found.unreadable[folder] = error.strerror or str(error)
            continue
        found.folders.append(folder)
        below: list[tuple[str, os.stat_result]] = []
        for entry in listed:
            path = os.path.join(folder, entry.name)  # that of a long folder is marked on Windows
            try:
                state = _state(entry)
            except FileNotFoundError:
                continue  # it went meanwhile, or is a link to nothing
            except OSError as error:
                found.unreadable[path] = error.strerror or str(error)
                continue
            if _is_left_out(entry.name, state):
                found.left_out += 1
            elif S_ISDIR(state.st_mode):
                below.append((path, state))
                if state.st_dev != facts.st_dev:
                    found.devices[path] = state.st_dev
            elif S_ISREG(state.st_mode):
                _add(found, path, state, most_files)
        waiting += reversed(below)


def _identities(folders: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Device and number of those that are there."""
    for folder in folders:
        with suppress(OSError, ValueError):
            facts = os.stat(folder)
            yield facts.st_dev, facts.st_ino


def _source_state(path: str) -> os.stat_result:
    return os.stat(disk_files.system_path(Path(path)))


def _state(entry: os.DirEntry[str]) -> os.stat_result:
    """That of a file or folder, or of what a link leads to."""
    if os.name == "nt":  # an entry there has no number of the file
        return os.stat(entry.path)
    return entry.stat()


def _is_left_out(name: str, state: os.stat_result) -> bool:
    hidden = name.startswith((".", *_TEMPORARY)) or name in _COPIES
    return hidden or bool(getattr(state, "st_file_attributes", 0) & _HIDDEN)


def _add(found: Scan, path: str, facts: os.stat_result, most_files: int) -> None:
    if path not in found.files and len(found.files) >= most_files:
        found.cut = True
    else:
        found.files[path] = SeenFile(path, facts.st_size, changed_at(facts))
