"""What lies beside a file that is on its way: what has arrived, and the note of what it is a part of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Part:
    """What a `.part` file is a part of, as the JSON beside it says."""

    url: str
    etag: str = ""  # of the server that sent the bytes
    linked_etag: str = ""  # of the hub, where it named one
    size_bytes: int = 0  # of the whole file; 0: unknown
    sha256: str = ""  # expected; "": unknown
    done_bytes: int = 0  # surely on the disk
    time: float = 0.0  # of this note, seconds since 1970


def part_of(path: Path) -> Path:
    """Where what has arrived of a file lies."""
    return path.with_name(path.name + ".part")


def sidecar_of(path: Path) -> Path:
    """Where it is noted what the part is a part of."""
    return path.with_name(path.name + ".part.json")


def drop_part(path: Path) -> None:
    """Remove what has arrived of a file, and the note beside it."""
    part_of(path).unlink(missing_ok=True)
    sidecar_of(path).unlink(missing_ok=True)


def read_part(sidecar: Path) -> Part | None:
    """The note beside a part; None when there is none or it cannot be read."""
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


def hash_of(path: Path, check_stop: Callable[[], None]) -> Any:
    """The running SHA-256 of a file so far; `check_stop` is called often and may raise."""
    running = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            check_stop()
            running.update(chunk)
    return running
