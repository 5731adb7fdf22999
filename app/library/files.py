"""Model files on the disk: folder scan, and deleting with undo.

Deleting first renames a file to a hidden name in the same folder, so undo is another rename
however large the file is; names that begin with a dot are never listed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.library.folders import Places
from app.state.library import FolderRow, Place
from engine import FolderSearch, model_parts, models_folder, search_models

_TRASH_SUFFIX = ".tokonoma-deleted"
_MAX_DEPTH = 6  # levels of subfolders; `installed_models` has the same limit


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A model file found by a scan, not opened yet."""

    path: Path
    place: Place
    size_bytes: int  # of all parts
    stamp: tuple[int, int]  # mtime in ns and size of all parts; (0, 0): missing


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Files and folders found by one scan."""

    files: tuple[FoundFile, ...]
    folders: tuple[FolderRow, ...]
    searched: tuple[Path, ...] = ()  # folders, with all below them


@dataclass(frozen=True, slots=True)
class TrashedModel:
    """A deleted model that can be restored: its files under their old and their hidden names."""

    path: Path
    name: str
    size_bytes: int
    linked: bool  # it was linked as a single file
    moves: tuple[tuple[Path, Path], ...]


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


def move_to_trash(path: Path, name: str, *, linked: bool) -> TrashedModel:
    """Rename all files of a model to hidden names. Raises OSError, with all renames undone."""
    parts = model_parts(path)
    size = sum(_size(part) for part in parts)
    moves: list[tuple[Path, Path]] = []
    try:
        for part in parts:
            aside = _free_name(part)
            part.rename(aside)
            moves.append((part, aside))
    except OSError:
        _move_back(moves)
        raise
    return TrashedModel(path, name, size, linked, tuple(moves))


def restore_from_trash(trashed: TrashedModel) -> None:
    """Undo `move_to_trash`. Raises OSError when a file cannot be renamed back."""
    for place, aside in trashed.moves:
        if place.exists():
            raise FileExistsError(place)
        aside.rename(place)


def delete_trashed(trashed: TrashedModel) -> None:
    """Delete the files of a trashed model permanently. Raises OSError."""
    for _, aside in trashed.moves:
        aside.unlink(missing_ok=True)


def empty_old_trash(folders: Sequence[Path]) -> None:
    """Delete trashed files that a crashed run left in these folders."""
    for folder in folders:
        for place, subfolders, files in os.walk(folder):
            deep = len(Path(place).relative_to(folder).parts) >= _MAX_DEPTH
            subfolders[:] = [] if deep else [n for n in subfolders if not n.startswith(".")]
            for name in files:
                if name.startswith(".") and name.endswith(_TRASH_SUFFIX):
                    with contextlib.suppress(OSError):  # tried again at the next start
                        (Path(place) / name).unlink()


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


def _free_name(path: Path) -> Path:
    """A free hidden name in the folder of a file."""
    aside = path.with_name(f".{path.name}{_TRASH_SUFFIX}")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f".{path.name}.{number}{_TRASH_SUFFIX}")
    return aside


def _move_back(moves: Sequence[tuple[Path, Path]]) -> None:
    for place, aside in moves:
        with contextlib.suppress(OSError):
            aside.rename(place)
