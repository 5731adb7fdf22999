"""Trash of models: deleted files wait under hidden names in their folders.

Deleting renames a file in its own folder, so that it is never copied and restoring is another
rename, however large it is; names that begin with a dot are never listed. A list of the deleted
models is kept, and written before the files are renamed: whatever a crash leaves is found again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from app.domain.chat import KEEP_DELETED_SECONDS
from app.state.library import TrashedModel
from app.system import json_file
from engine import disk_files, is_usual, model_encoder, model_label, model_parts

_SUFFIX = ".tokonoma-deleted"
_HIDDEN = re.compile(r"\.(.+\.gguf)(?:\.\d+)?" + re.escape(_SUFFIX), re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-(\d{5}\.gguf)$", re.IGNORECASE)


def file(places: Path) -> Path:
    """Path of the list of deleted models, beside the list of places."""
    return places.with_name("deleted-models.json")


def read(path: Path, folders: Iterable[Path], now: float) -> list[TrashedModel]:
    """The deleted models that can be restored: those listed, and others found in these folders."""
    listed = json_file.read(path).get("models")
    stored = cast("list[object]", listed) if isinstance(listed, list) else []
    models = [model for each in stored if (model := _model(each)) is not None]
    models = [model for model in models if _may_exist(model)]
    known = {aside for model in models for _, aside in model.moves}
    return models + _unlisted(folders, known, now)


def write(path: Path, models: Sequence[TrashedModel]) -> None:
    """Write the list of deleted models. Raises `JsonFileError`."""
    json_file.write(path, {"models": [_stored(model) for model in models]})


def planned(path: Path, *, linked: bool, now: float) -> TrashedModel:
    """What deleting a model would do, with its picture encoder if no other model uses that.

    Reads the headers of the models in its folder; no file is renamed yet.
    """
    parts = model_parts(path)
    encoder = model_encoder(path)
    if encoder is not None and not _is_shared(encoder, parts):
        parts = [*parts, encoder]
    moves = tuple((part, _free_name(part)) for part in parts)
    size_bytes = sum(_size(part) for part in parts)
    return TrashedModel(path, model_label(path), size_bytes, linked, now, moves)


def move_to_trash(model: TrashedModel) -> None:
    """Rename all files of a model to hidden names. Raises OSError, with all renames undone."""
    _rename(model.moves)
    for _, aside in model.moves:
        _set_hidden(aside, hidden=True)


def restore_from_trash(model: TrashedModel) -> None:
    """Undo `move_to_trash`. Raises OSError, with all renames undone.

    A picture encoder that has been downloaded again meanwhile replaces the deleted one.
    """
    twice = [move for move in model.moves if _is_same_encoder(*move)]
    moves = [move for move in model.moves if move not in twice]
    for place, _ in moves:
        if os.path.lexists(place):
            raise FileExistsError(place)
    _rename([(aside, place) for place, aside in moves])
    for place, _ in moves:
        _set_hidden(place, hidden=False)
    for _, aside in twice:
        with contextlib.suppress(OSError):
            disk_files.delete(aside)


def delete_trashed(model: TrashedModel) -> None:
    """Delete the files of a trashed model permanently.

    Raises OSError, FileNotFoundError for one whose folder is not here.
    """
    for _, aside in model.moves:
        if not aside.parent.is_dir():
            raise FileNotFoundError(2, os.strerror(2), str(aside.parent))  # an unplugged disk
        disk_files.delete(aside)


def is_old(model: TrashedModel, now: float) -> bool:
    """Whether a model has been in the trash for as long as deleted chats are kept."""
    return now - model.deleted >= KEEP_DELETED_SECONDS


def _is_shared(encoder: Path, parts: Sequence[Path]) -> bool:
    """Whether another model in the folder uses a picture encoder."""
    models = (each for each in encoder.parent.glob("*.gguf") if each not in (encoder, *parts))
    return any(model_encoder(each) == encoder for each in models)


def _is_same_encoder(place: Path, aside: Path) -> bool:
    """Whether a deleted picture encoder is there again."""
    return is_usual(place.name) and place.is_file() and _size(place) == _size(aside)


def _rename(moves: Sequence[tuple[Path, Path]]) -> None:
    done: list[tuple[Path, Path]] = []
    try:
        for before, after in moves:
            disk_files.rename(before, after)
            done.append((before, after))
    except OSError:
        for before, after in done:
            with contextlib.suppress(OSError):
                disk_files.rename(after, before)
        raise


def _set_hidden(path: Path, *, hidden: bool) -> None:
    """Hide a file in the file manager of Windows, where a dot does not; or show it again."""
    if sys.platform == "win32":
        with contextlib.suppress(OSError):
            attributes = path.stat().st_file_attributes & ~stat.FILE_ATTRIBUTE_HIDDEN
            wanted = attributes | (stat.FILE_ATTRIBUTE_HIDDEN if hidden else 0)
            ctypes.WinDLL("kernel32").SetFileAttributesW(str(path), wanted)


def _may_exist(model: TrashedModel) -> bool:
    """Whether some file of it is in the trash, or its disk is not here."""
    return any(os.path.lexists(aside) or not aside.parent.is_dir() for _, aside in model.moves)


def _unlisted(folders: Iterable[Path], known: set[Path], now: float) -> list[TrashedModel]:
    """Deleted models that are in the folders and not in the list; their time counts from now."""
    found: dict[tuple[Path, str], list[tuple[Path, Path]]] = {}
    for folder in folders:
        for aside in _inside(folder):
            match = _HIDDEN.fullmatch(aside.name)
            if match is None or aside in known:
                continue
            whole = _PART.sub(r"-of-\1", match[1])
            found.setdefault((folder, whole), []).append((folder / match[1], aside))
    return [
        TrashedModel(
            moves[0][0],
            model_label(moves[0][0]),
            sum(_size(aside) for _, aside in moves),
            False,
            now,
            tuple(moves),
        )
        for moves in map(sorted, found.values())
    ]


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _stored(model: TrashedModel) -> dict[str, object]:
    return {
        "path": str(model.path),
        "name": model.name,
        "size_bytes": model.size_bytes,
        "linked": model.linked,
        "deleted": model.deleted,
        "files": [[str(place), str(aside)] for place, aside in model.moves],
    }


def _model(stored: object) -> TrashedModel | None:
    """One row of the list; None if it is not valid, or names other files than the trash has."""
    if not isinstance(stored, dict):
        return None
    values = cast("dict[str, Any]", stored)
    try:
        moves = tuple((Path(place), Path(aside)) for place, aside in values["files"])
        size_bytes, deleted = int(values["size_bytes"]), float(values["deleted"])
        path, name = Path(values["path"]), str(values["name"])
    except (KeyError, TypeError, ValueError):
        return None
    safe: Callable[[Path, Path], bool] = lambda place, aside: (  # noqa: E731
        place.is_absolute()
        and place.parent == aside.parent
        and _HIDDEN.fullmatch(aside.name) is not None
    )
    if not moves or not all(safe(place, aside) for place, aside in moves):
        return None
    return TrashedModel(path, name, size_bytes, values.get("linked") is True, deleted, moves)


def _size(path: Path) -> int:
    """Bytes that deleting a file frees: of a link not those of its target."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _free_name(path: Path) -> Path:
    """A free hidden name in the folder of a file."""
    aside = path.with_name(f".{path.name}{_SUFFIX}")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f".{path.name}.{number}{_SUFFIX}")
    return aside
