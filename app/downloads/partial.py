"""Partial-download file `<name>.part` and its JSON sidecar `<name>.part.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from engine import disk_files

_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Part:
    """Contents of the sidecar: which file the `.part` file belongs to, and how much is synced."""

    url: str
    etag: str = ""  # of the server that sent the bytes
    linked_etag: str = ""  # of the hub, if it sent one
    size_bytes: int = 0  # of the whole file; 0: unknown
    sha256: str = ""  # expected; "": unknown
    done_bytes: int = 0  # synced to the disk
    time: float = 0.0  # of this checkpoint, seconds since 1970


def part_path(path: Path) -> Path:
    """Path of a file's partial download."""
    return path.with_name(path.name + ".part")


def sidecar_path(path: Path) -> Path:
    """Path of the partial download's sidecar."""
    return path.with_name(path.name + ".part.json")


def delete_part(path: Path) -> None:
    """Delete the partial download of a file and its sidecar."""
    disk_files.delete(sidecar_path(path))  # first: without it, the part is not resumed
    disk_files.delete(part_path(path))


def read_part(sidecar: Path) -> Part | None:
    """Read a sidecar; None when it is missing or invalid."""
    try:
        stored: object = json.loads(sidecar.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(stored, dict):
        return None
    values = cast("dict[str, object]", stored)
    known = {field.name: values.get(field.name, field.default) for field in fields(Part)}
    texts = all(isinstance(known[name], str) for name in ("url", "etag", "linked_etag", "sha256"))
    counts = all(type(known[name]) is int for name in ("size_bytes", "done_bytes"))
    if not texts or not counts or not isinstance(known["time"], int | float):
        return None
    part = Part(**cast("dict[str, Any]", known))
    return part if part.url and part.size_bytes >= 0 and part.done_bytes >= 0 else None


def hash_file(path: Path, check_stop: Callable[[], None]) -> Any:
    """SHA-256 object of a file's bytes, to continue with; `check_stop` may raise in between."""
    running = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            check_stop()
            running.update(chunk)
    return running
