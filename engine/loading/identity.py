"""SHA-256 of model files, remembered as long as the files stay as they are.

Hashing gigabytes takes seconds, and a saved session must name the very model it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PIECE = 1 << 20  # bytes hashed between two looks at Cancel
_MOST_FILES = 256  # remembered
_LARGEST_MEMORY = 1 << 20  # bytes of the file that remembers
# A file this young may change again without its time showing it.
_SETTLED_NANOSECONDS = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Stamp:
    """What of a file changes when its contents do, as far as the system tells."""

    path: str
    size_bytes: int
    modified_ns: int
    node: int


class ModelFiles:
    """The files of a loaded model: their hash, as long as they are those that were loaded."""

    def __init__(self, paths: Sequence[Path], loaded: tuple[Stamp, ...], memory: Path) -> None:
        """`loaded` are the stamps from before the files were read."""
        self._paths = tuple(paths)
        self._loaded = loaded
        self._memory = memory
        self._sha256 = ""

    def sha256(self, checkpoint: Callable[[], None] = lambda: None) -> str:
        """Computed once; "" when the files have changed or are gone. Raises what `checkpoint` does."""
        if not self._sha256:
            with suppress(OSError):
                if stamps(self._paths) == self._loaded:
                    found = sha256(self._paths, self._memory, checkpoint)
                    if stamps(self._paths) == self._loaded:
                        self._sha256 = found
        return self._sha256


def stamps(paths: Sequence[Path]) -> tuple[Stamp, ...]:
    """The stamps of files as they are now; raises OSError for one that is gone."""
    return tuple(_stamp(path) for path in paths)


def sha256(
    paths: Sequence[Path], memory: Path, checkpoint: Callable[[], None] = lambda: None
) -> str:
    """The hash of a file in hexadecimal; of several files, the hash of their hashes in order.

    `memory` is the file that remembers. Raises OSError, and what `checkpoint` raises.
    """
    found = [_one(path, memory, checkpoint) for path in paths]
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(str(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ino)


def _one(path: Path, memory: Path, checkpoint: Callable[[], None]) -> str:
    before = _stamp(path)
    known = _remembered(memory).get(before.path)
    if known and known[:3] == [before.size_bytes, before.modified_ns, before.node]:
        return str(known[3])
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            checkpoint()
            digest.update(piece)
    settled = time.time_ns() - before.modified_ns > _SETTLED_NANOSECONDS
    if settled and _stamp(path) == before:
        _remember(memory, before, digest.hexdigest())
    return digest.hexdigest()


def _remembered(memory: Path) -> dict[str, list[int | str]]:
    """What is remembered, the latest last; nothing where the file is missing or spoiled."""
    try:
        with memory.open("rb") as file:
            found = json.loads(file.read(_LARGEST_MEMORY))
        return {path: known for path, known in found.items() if _is_sound(known)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _is_sound(known: object) -> bool:
    return (
        isinstance(known, list)
        and [type(part) for part in known] == [int, int, int, str]
        and len(str(known[3])) == 64
    )


def _remember(memory: Path, stamp: Stamp, digest: str) -> None:
    """Add one file; a disk that takes nothing only costs the time to hash it again."""
    files = _remembered(memory)
    files.pop(stamp.path, None)
    files[stamp.path] = [stamp.size_bytes, stamp.modified_ns, stamp.node, digest]
    kept = dict(list(files.items())[-_MOST_FILES:])
    temporary = memory.with_name(f".{memory.name}.{secrets.token_hex(4)}.tmp")
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(json.dumps(kept), encoding="utf-8")
            os.replace(temporary, memory)
        finally:
            temporary.unlink(missing_ok=True)
