"""Model folders and single files the user has added, besides the app's own folder.

They are linked in place. A missing folder, such as one on an unplugged drive, stays listed until
the user removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from app.system import json_file, paths


@dataclass(frozen=True, slots=True)
class Places:
    """The added folders and files that the library scans, in the order they were added."""

    folders: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()


def file() -> Path:
    """Path of the settings file that lists the places."""
    return paths.config() / "library.json"


def load(path: Path) -> Places:
    """Read the places from a file; entries that are not absolute paths are skipped."""
    stored = json_file.read(path)
    return Places(_paths(stored.get("folders")), _paths(stored.get("files")))


def save(path: Path, places: Places) -> None:
    """Write the places. Raises `JsonFileError`."""
    json_file.write(path, {"folders": _texts(places.folders), "files": _texts(places.files)})


def _paths(stored: object) -> tuple[Path, ...]:
    if not isinstance(stored, list):
        return ()
    texts = [text for text in cast("list[object]", stored) if isinstance(text, str)]
    found = [Path(text) for text in texts if "\0" not in text]
    return tuple(dict.fromkeys(each for each in found if each.is_absolute()))


def _texts(places: Sequence[Path]) -> list[str]:
    return [str(place) for place in places]
