"""Model files on the disk: the scan of the folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.library.folders import Places
from app.state.library import FolderRow, Place
from engine import FolderSearch, is_usual, model_parts, models_folder, search_models

Beside = tuple[tuple[str, tuple[int, int]], ...]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A model file found by a scan, not opened yet."""

    path: Path
    place: Place
    size_bytes: int  # of all parts
    stamp: tuple[int, int]  # mtime in ns and size of all parts; (0, 0): missing
    beside: Beside = ()  # names and stamps of the picture encoders in its folder


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Files and folders found by one scan."""

    files: tuple[FoundFile, ...]
    folders: tuple[FolderRow, ...]
    searched: tuple[Path, ...] = ()  # folders, with all below them


def scan(places: Places) -> ScanResult:
    """List the models of the app's own folder, the added folders and files; may take seconds."""
    own = models_folder()
    present = {folder: folder.is_dir() for folder in places.folders}
    reachable = [folder for folder, there in present.items() if there]
    search = search_models(reachable)
    listed = search.models
    found = [_found(path, _place(path, own, reachable)) for path in listed]
    known = {_identity(path) for path in listed}
    found += [_found(path, Place.FILE) for path in places.files if _identity(path) not in known]
    found = _with_encoders(found)
    folders = [FolderRow(own, True, own.is_dir(), _inside(own, listed))]
    folders += [
        FolderRow(folder, False, there, _inside(folder, listed))
        for folder, there in present.items()
    ]
    folders = [
        replace(row, skipped=search.folders.get(row.path, FolderSearch()).skipped)
        for row in folders
    ]
    searched = tuple(each for one in search.folders.values() for each in one.folders)
    return ScanResult(tuple(found), tuple(folders), searched)


def folder_of(path: Path) -> Path:
    """The nearest existing folder, from a path upwards."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _found(path: Path, place: Place) -> FoundFile:
    try:
        info = path.stat()
    except OSError:
        return FoundFile(path, place, 0, (0, 0))
    size = sum(_size(part) for part in model_parts(path))
    return FoundFile(path, place, size, (info.st_mtime_ns, size))


def _with_encoders(found: Sequence[FoundFile]) -> list[FoundFile]:
    """The files, each with the picture encoders in its folder: they decide what a model can do."""
    encoders: dict[Path, list[tuple[str, tuple[int, int]]]] = {}
    for each in found:
        if is_usual(each.path.name):
            encoders.setdefault(each.path.parent, []).append((each.path.name, each.stamp))
    return [replace(each, beside=tuple(encoders.get(each.path.parent, ()))) for each in found]


def _place(path: Path, own: Path, folders: Sequence[Path]) -> Place:
    if path.is_relative_to(own):
        return Place.OWN
    added = any(path.is_relative_to(folder) for folder in folders)
    return Place.FOLDER if added else Place.BUNDLED


def _inside(folder: Path, listed: Sequence[Path]) -> int:
    return sum(path.is_relative_to(folder) for path in listed)


def _identity(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
