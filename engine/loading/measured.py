"""Measured figures of each model, remembered between runs: prefill times and memory.

One JSON file in the data folder, at most some dozen models; replaced atomically. Entries that are
damaged or that describe an earlier version of a model file are ignored: the figures are then
estimated and measured again.
"""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from engine.loading.identity import Stamp
from engine.loading.library import data_folder
from engine.machine import disk_files

_MAX_ENTRIES = 64
_MAX_FILE_BYTES = 1 << 20


def measured_file() -> Path:
    """The file of the user's machine."""
    return data_folder() / "measured.json"


def key(files: tuple[Stamp, ...], *conditions: object) -> str:
    """Identifies a version of a model's files under `conditions`, such as the cache type."""
    parts = (*files, *conditions)
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def read_weights(files: tuple[Stamp, ...]) -> int:
    """The memory of a model's weights as measured when it was loaded last; 0: not yet."""
    rows = MeasuredFigures(measured_file()).read("weights", key(files), 1)
    return int(rows[0][0]) if rows else 0


def write_weights(files: tuple[Stamp, ...], measured_bytes: int) -> None:
    """Remember the measured memory of a model's weights."""
    if files:
        MeasuredFigures(measured_file()).write("weights", key(files), [[float(measured_bytes)]])


class MeasuredFigures:
    """The lists of numbers stored in one file, by kind and key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, kind: str, key: str, width: int) -> list[list[float]]:
        """The rows of `width` finite numbers, none negative; empty if there are none or damaged."""
        rows = self._entries().get(f"{kind} {key}")
        if isinstance(rows, list) and all(_is_row(row, width) for row in cast("list[Any]", rows)):
            return cast("list[list[float]]", rows)
        return []

    def write(self, kind: str, key: str, rows: list[list[float]]) -> None:
        """Replace the rows; a failed write is ignored, the figures are then measured again."""
        entries = self._entries()
        entries.pop(f"{kind} {key}", None)
        entries[f"{kind} {key}"] = rows
        kept = dict(list(entries.items())[-_MAX_ENTRIES:])
        with suppress(OSError):
            disk_files.make_folder(self._path.parent)
            disk_files.write(self._path, [json.dumps(kept).encode()])

    def _entries(self) -> dict[str, Any]:
        """All entries, the newest last; empty if the file is missing or damaged."""
        try:
            with self._path.open("rb") as file:
                found: object = json.loads(file.read(_MAX_FILE_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _is_row(row: object, width: int) -> bool:
    if not isinstance(row, list):
        return False
    numbers = cast("list[Any]", row)
    return len(numbers) == width and all(
        type(number) in (int, float) and math.isfinite(number) and number >= 0 for number in numbers
    )
