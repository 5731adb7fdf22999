"""One JSON object in a file of the user's: read with suspicion, replaced whole or not at all.

A person may edit such a file, a disk may spoil it and a crash may come while it is written; none
of that may keep the app from starting or cost what was there before.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any, cast

_log = logging.getLogger(__name__)


class JsonFileError(Exception):
    """The file could not be written: `str(error)` says why, `remedy` what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a file that holds none is set aside, and nothing is returned."""
    try:
        stored: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        _log.warning("%s cannot be read: %s", path.name, error.strerror)
        return {}
    except (ValueError, RecursionError):
        stored = None
    if isinstance(stored, dict):
        return cast("dict[str, Any]", stored)
    aside = path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    try:
        os.replace(path, aside)
        _log.warning("%s is damaged and was set aside", path.name)
    except OSError as error:
        _log.warning("%s is damaged and cannot be set aside: %s", path.name, error.strerror)
    return {}


def write(path: Path, values: dict[str, Any]) -> None:
    """Replace a file by these values so that a crash leaves the old or the new one, never half.

    Keys the file has and `values` lacks stay in it. Raises `JsonFileError`.
    """
    text = json.dumps({**read(path), **values}, indent=2, sort_keys=True) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode("ascii"))
    except OSError as error:
        raise JsonFileError(
            f"The file {path} could not be written: {error.strerror or error}.",
            "Check that the folder can be written to and that the disk is not full.",
        ) from error


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file so that a crash leaves the old one or the new one, never half of one.

    Only its owner can read it. The other name is always the same, so that crashes leave one at most.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring new names in a folder to the disk, where the system knows how."""
    if sys.platform == "win32":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
