"""Model files on the disk: what lies where, putting files away so that it can be undone, and for good.

What a person deletes is renamed in its own folder first, so that bringing it back costs nothing
however large it is; a name that begins with a dot is never listed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.library.folders import Places
from app.state.library import FolderRow, Place
from engine import installed_models, model_parts, models_folder

_PUT_AWAY = ".tokonoma-deleted"
_DEEPEST = 6  # folders below one; models are not looked for further down either


@dataclass(frozen=True, slots=True)
class Found:
    """A model file as a look at its folder shows it; nothing in it was read."""

    path: Path
    place: Place
    size_bytes: int  # of all parts
    stamp: tuple[int, int]  # changes with the file; (0, 0): it is not there


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What one look at all places found."""

    files: tuple[Found, ...]
    folders: tuple[FolderRow, ...]


@dataclass(frozen=True, slots=True)
class TrashedModel:
    """A deleted model that can still come back: its files, where they were and where they are."""

    path: Path
    name: str
    size_bytes: int
    linked: bool  # it was listed as a single file
    moves: tuple[tuple[Path, Path], ...]


def look(places: Places) -> ScanResult:
    """Every model of the app's own folder, of the added folders and files; may take long."""
    own = models_folder()
    present = {folder: folder.is_dir() for folder in places.folders}
    reachable = [folder for folder, there in present.items() if there]
    listed = installed_models(reachable)
    found = [_found(path, _place(path, own, reachable)) for path in listed]
    known = {_identity(path) for path in listed}
    found += [_found(path, Place.FILE) for path in places.files if _identity(path) not in known]
    folders = [FolderRow(own, True, own.is_dir(), _inside(own, listed))]
    folders += [
        FolderRow(folder, False, there, _inside(folder, listed))
        for folder, there in present.items()
    ]
    return ScanResult(tuple(found), tuple(folders))


def put_away(path: Path, name: str, *, linked: bool) -> TrashedModel:
    """Rename all files of a model so that nothing lists them. Raises OSError, having changed nothing."""
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


def bring_back(away: TrashedModel) -> None:
    """Undo `put_away`. Raises OSError when a file cannot come back."""
    for place, aside in away.moves:
        if place.exists():
            raise FileExistsError(None, "there is another file of its name now", str(place))
        aside.rename(place)


def remove(away: TrashedModel) -> None:
    """Delete what was put away, for good. Raises OSError."""
    for _, aside in away.moves:
        aside.unlink(missing_ok=True)


def remove_left(folders: Sequence[Path]) -> None:
    """Delete for good what a run that crashed had put away."""
    for folder in folders:
        for place, below, files in os.walk(folder):
            deep = len(Path(place).relative_to(folder).parts) >= _DEEPEST
            below[:] = [] if deep else [name for name in below if not name.startswith(".")]
            for name in files:
                if name.startswith(".") and name.endswith(_PUT_AWAY):
                    with contextlib.suppress(OSError):  # next time, then
                        (Path(place) / name).unlink()


def folder_of(path: Path) -> Path:
    """The nearest folder that exists, from a path upwards."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _found(path: Path, place: Place) -> Found:
    try:
        info = path.stat()
    except OSError:
        return Found(path, place, 0, (0, 0))
    size = sum(_size(part) for part in model_parts(path))
    return Found(path, place, size, (info.st_mtime_ns, size))


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
    """A hidden name beside a file that nothing has yet."""
    aside = path.with_name(f".{path.name}{_PUT_AWAY}")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f".{path.name}.{number}{_PUT_AWAY}")
    return aside


def _move_back(moves: Sequence[tuple[Path, Path]]) -> None:
    for place, aside in moves:
        with contextlib.suppress(OSError):
            aside.rename(place)
