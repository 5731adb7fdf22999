"""SHA-256 of model files, cached on disk by path, size, modification time, inode and samples.

A snapshot stores the hash of its model; hashing gigabytes takes seconds, hence the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.machine import disk_files

_CHUNK_BYTES = 1 << 20  # hashed between cancellation checks
_SAMPLES, _SAMPLE_BYTES = 32, 1 << 15  # of a file, besides its first chunk
_MAX_ENTRIES = 256
_MAX_CACHE_BYTES = 1 << 20
# A file modified more recently may change again within the resolution of its timestamp.
_MIN_AGE_NANOSECONDS = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Stamp:
    """File status used as a cache key: it usually changes when the contents do."""

    path: str
    size_bytes: int
    modified_ns: int
    inode: int


class ModelFiles:
    """The files of a loaded model, and their hash while they are unchanged since loading."""

    def __init__(
        self,
        paths: Sequence[Path],
        loaded: tuple[Stamp, ...],
        hash_cache: Path,
        *,
        read_again: bool = False,
    ) -> None:
        """`loaded` are the stamps taken before the files were read.

        `read_again`: they are read at any later time too, so that no change may come then either.
        """
        self._paths = tuple(paths)
        self._loaded = loaded
        self._hash_cache = hash_cache
        self._read_again = read_again
        self._sha256 = ""

    def sha256(self, checkpoint: Callable[[], None] = lambda: None) -> str:
        """The hash, or "" if a file changed or is gone. Raises what `checkpoint` raises."""
        if self._sha256 and not (self._read_again and self._has_changed()):
            return self._sha256
        self._sha256 = ""
        if not self._has_changed():
            with suppress(OSError):
                found = sha256(self._paths, self._hash_cache, checkpoint)
                if not self._has_changed():
                    self._sha256 = found
        return self._sha256

    def _has_changed(self) -> bool:
        try:
            return stamps(self._paths) != self._loaded
        except OSError:
            return True


def stamps(paths: Sequence[Path]) -> tuple[Stamp, ...]:
    """The current stamps of files; raises OSError for a missing file."""
    return tuple(_stamp(path) for path in paths)


def sha256(
    paths: Sequence[Path], hash_cache: Path, checkpoint: Callable[[], None] = lambda: None
) -> str:
    """The SHA-256 of a file in hexadecimal; of several files, the hash of their joined hashes.

    `hash_cache` is the JSON file of known hashes. Raises OSError, and what `checkpoint` raises.
    """
    found = [_hash_file(path, hash_cache, checkpoint) for path in paths]
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def sampled_sha256(paths: Sequence[Path]) -> str:
    """The SHA-256 of the sizes of files, of their beginnings and of samples of the rest.

    It tells weights apart without reading gigabytes; it proves nothing. Raises OSError.
    """
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{size} ".encode())
            digest.update(file.read(_CHUNK_BYTES))
            for number in range(1, _SAMPLES + 1):
                file.seek(size * number // (_SAMPLES + 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(str(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ino)


def _hash_file(path: Path, hash_cache: Path, checkpoint: Callable[[], None]) -> str:
    before, samples = _stamp(path), sampled_sha256([path])
    known = _read_cache(hash_cache).get(before.path)
    # A copy may keep the time of another file, and a disk may count time in steps of seconds.
    state = [before.size_bytes, before.modified_ns, before.inode, samples]
    if known and [*known[:3], known[4]] == state:
        return str(known[3])
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            checkpoint()
            digest.update(chunk)
    is_old_enough = time.time_ns() - before.modified_ns > _MIN_AGE_NANOSECONDS
    if is_old_enough and _stamp(path) == before:
        _add_to_cache(hash_cache, before, digest.hexdigest(), samples)
    return digest.hexdigest()


def _read_cache(hash_cache: Path) -> dict[str, list[int | str]]:
    """The cached entries by path, newest last; empty if the cache file is missing or damaged."""
    try:
        with hash_cache.open("rb") as file:
            found = json.loads(file.read(_MAX_CACHE_BYTES))
        return {path: known for path, known in found.items() if _is_valid(known)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _is_valid(known: object) -> bool:
    return (
        isinstance(known, list)
        and [type(part) for part in known] == [int, int, int, str, str]
        and len(str(known[3])) == 64
    )


def _add_to_cache(hash_cache: Path, stamp: Stamp, digest: str, samples: str) -> None:
    """Add one file by atomic replace; a failed write is ignored, the file is then hashed again."""
    files = _read_cache(hash_cache)
    files.pop(stamp.path, None)
    files[stamp.path] = [stamp.size_bytes, stamp.modified_ns, stamp.inode, digest, samples]
    kept = dict(list(files.items())[-_MAX_ENTRIES:])
    with suppress(OSError):
        disk_files.make_folder(hash_cache.parent)
        disk_files.write(hash_cache, [json.dumps(kept).encode()])
