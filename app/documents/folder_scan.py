"""Scan of folders: the files in them, without what nobody means, and what cannot be read.

Hidden files and folders, and those that hold other programs' copies (such as `node_modules`), are
left out and counted. A folder is read once, whatever links lead to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG

MOST_FILES = 100_000  # of a scan
_COPIES = frozenset(("node_modules", "__pycache__", "$RECYCLE.BIN", "System Volume Information"))
_TEMPORARY = ("~$", ".~")  # how names of lock files of office programs begin
_HIDDEN = 0x2  # FILE_ATTRIBUTE_HIDDEN of Windows


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as a scan sees it."""

    path: str
    size: int  # bytes
    modified: int  # nanoseconds since 1970


@dataclass(slots=True)
class Scan:
    """What a scan found."""

    files: dict[str, SeenFile] = field(default_factory=dict[str, SeenFile])  # by path
    folders: list[str] = field(default_factory=list[str])  # that were read
    left_out: int = 0  # hidden files and folders, and links to what is there already
    unreadable: dict[str, str] = field(default_factory=dict[str, str])  # reasons by path
    missing: list[str] = field(default_factory=list[str])  # sources that are not there
    cut: bool = False  # there are more files than may be

    def may_have(self, path: str) -> bool:
        """Whether a file that was not found may still be there, in what could not be read."""
        lost = (*self.missing, *self.unreadable)
        return self.cut or any(path == each or path.startswith(_inside(each)) for each in lost)


def scan(
    sources: Iterable[str],
    cancelled: Callable[[], bool] = lambda: False,
    most_files: int = MOST_FILES,
) -> Scan:
    """The files of folders and single files, which are absolute paths; blocks."""
    found = Scan()
    seen = set[tuple[int, int]]()  # device and number of folders
    for source in sources:
        try:
            facts = os.stat(source)
        except (OSError, ValueError):
            found.missing.append(source)
            continue
        if S_ISDIR(facts.st_mode):
            _scan_folders(source, facts, found, seen, cancelled, most_files)
        elif S_ISREG(facts.st_mode):
            _add(found, source, facts, most_files)
        else:
            found.missing.append(source)
    return found


def _scan_folders(
    source: str,
    facts: os.stat_result,
    found: Scan,
    seen: set[tuple[int, int]],
    cancelled: Callable[[], bool],
    most_files: int,
) -> None:
    waiting = [(source, facts)]
    while waiting and not found.cut and not cancelled():
        folder, facts = waiting.pop()
        identity = facts.st_dev, facts.st_ino
        if facts.st_ino and identity in seen:
            found.left_out += 1
            continue
        seen.add(identity)
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda each: each.name)
        except OSError as error:
            found.unreadable[folder] = error.strerror or str(error)
            continue
        found.folders.append(folder)
        inside: list[tuple[str, os.stat_result]] = []
        for entry in listed:
            try:
                state = _state(entry)
            except FileNotFoundError:
                continue  # it went meanwhile, or is a link to nothing
            except OSError as error:
                found.unreadable[entry.path] = error.strerror or str(error)
                continue
            if _is_left_out(entry.name, state):
                found.left_out += 1
            elif S_ISDIR(state.st_mode):
                inside.append((entry.path, state))
            elif S_ISREG(state.st_mode):
                _add(found, entry.path, state, most_files)
        waiting += reversed(inside)


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
        found.files[path] = SeenFile(path, facts.st_size, facts.st_mtime_ns)


def _inside(folder: str) -> str:
    """How paths in a folder begin."""
    return str(Path(folder)).rstrip(os.sep) + os.sep
