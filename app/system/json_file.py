"""JSON files of the user: validated reads and atomic replacement.

The user may edit such a file, the disk may damage it, and a crash may interrupt a write; none of
these may prevent the start of the app or lose the old contents.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from app.system.file_advice import advice
from app.system.translation import tr
from engine import disk_files

_log = logging.getLogger(__name__)


class JsonFileError(Exception):
    """The file could not be written: `str(error)` is the reason, `remedy` the advice."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object; a file without one is renamed, and an empty dict returned."""
    try:
        return _object(path)
    except OSError as error:
        _log.warning("%s cannot be read: %s", path.name, error.strerror)
        return {}


def _object(path: Path) -> dict[str, Any]:
    """The object of a file, empty if there is none; raises OSError if it cannot be read."""
    try:
        stored: object = json.loads(disk_files.read_bytes(path))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        stored = None
    if isinstance(stored, dict):
        return cast("dict[str, Any]", stored)
    aside = path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    try:
        disk_files.replace(path, aside)
        _log.warning("%s is damaged and was set aside", path.name)
    except OSError as error:
        _log.warning("%s is damaged and cannot be set aside: %s", path.name, error.strerror)
    return {}


def write(path: Path, values: dict[str, Any]) -> None:
    """Atomically replace a file, so that a crash leaves the old or the new contents.

    Keys of the file that `values` lacks are kept: one that cannot be read now is not replaced.
    Raises `JsonFileError`.
    """
    _write(path, lambda: {**_object(path), **values})


def replace(path: Path, values: dict[str, Any]) -> None:
    """Atomically replace a file by these values alone; raises `JsonFileError`."""
    _write(path, lambda: values)


def _write(path: Path, values: Callable[[], dict[str, Any]]) -> None:
    try:
        text = json.dumps(values(), indent=2, sort_keys=True) + "\n"
        disk_files.make_folder(path.parent)
        replace_file(path, text.encode("ascii"))
    except OSError as error:
        raise JsonFileError(
            tr("{path} could not be written: {reason}.", path=path, reason=error.strerror or error),
            advice(
                error,
                tr("Check that the folder can be written to and that the disk is not full."),
            ),
        ) from error


def replace_file(path: Path, content: bytes) -> None:
    """Atomic replace: write a temporary file, sync it, and rename it over `path`.

    Only the owner can read it. The temporary name is fixed, so crashes leave at most one file.
    Raises OSError.
    """
    disk_files.write(path, [content], temporary=path.name + ".new")
    disk_files.sync_folder(path.parent)
