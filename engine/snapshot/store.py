"""Snapshot store: an LRU cache of snapshot files in a folder, with a size budget.

A file name consists of the hashes of its conversation and contents; its modification time is that
of its last use. Files may be deleted at any time: losing one only costs a prefill. This module does
not import torch.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import RequestError, SnapshotError
from engine.snapshot import file as snapshot_file
from engine.snapshot.folder import SUFFIX, conversation_prefix

log = logging.getLogger(__name__)

_MAX_TOKEN_BYTES = 1 << 26  # sixteen million tokens: more than any context
_MEGABYTE = 1e6


def check_budget(size_bytes: int, budget_bytes: int) -> None:
    """Raise RequestError for a snapshot larger than the budget of all snapshots together.

    It is not written at all: it would evict every other file, and the next save would evict it.
    """
    if size_bytes > budget_bytes:
        raise RequestError(
            f"The cached context of this conversation takes {size_bytes / _MEGABYTE:,.0f} MB, and "
            f"the disk space for cached conversations is {budget_bytes / _MEGABYTE:,.0f} MB.",
            "Allow more disk space in the settings.",
        )


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot file in the store; its contents are not verified."""

    path: Path
    size_bytes: int
    used_ns: int  # time of the last write or restore
    metadata: Mapping[str, str]  # empty if `fault` is set
    token_bytes: bytes = b""
    fault: SnapshotError | None = None

    @property
    def tokens(self) -> Sequence[int]:
        """The token ids."""
        return _ids(self.token_bytes)

    @property
    def key(self) -> tuple[str, ...]:
        """Model, adapter stack and cache type: equal for interchangeable snapshots."""
        return tuple(self.metadata.get(name, "") for name in ("model_sha256", "stack", "cache"))

    def belongs_to(self, conversation: str) -> bool:
        """Whether it was saved for this conversation."""
        return self.path.name.startswith(conversation_prefix(conversation))


class Snapshots:
    """The snapshot files of one folder; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, Saved] = {}
        snapshot_file.remove_leftovers(folder)

    def all(self) -> list[Saved]:
        """Every file, most recently used first; headers of unchanged files are cached."""
        with self._lock:
            known: dict[str, Saved] = {}
            for path, size, used in _files(self._folder):
                before = self._known.get(path.name)
                same = before and (before.size_bytes, before.used_ns) == (size, used)
                known[path.name] = before if before and same else _read(path, size, used)
            self._known = known
        return sorted(known.values(), key=lambda saved: saved.used_ns, reverse=True)

    def save(
        self,
        *,
        conversation: str,
        key: tuple[str, ...],
        token_bytes: bytes,
        budget_bytes: int,
        write: Callable[[Path], int],
    ) -> tuple[Path, int, int]:
        """Write a file and evict others: returns its path, its size and how many were evicted.

        Files whose tokens are a prefix of the new ones are superseded and deleted; then the least
        recently used ones until the total is at most `budget_bytes`. Raises OSError.
        """
        path = self._folder / _file_name(conversation, key, token_bytes)
        size = write(path)
        for saved in self.all():
            shorter = len(saved.token_bytes) < len(token_bytes)
            if shorter and saved.key == key and token_bytes.startswith(saved.token_bytes):
                self.delete(saved)
        return path, size, self._evict(path, budget_bytes)

    def touch(self, saved: Saved) -> None:
        """Mark a file as used now."""
        now = time.time_ns()
        with suppress(OSError):
            os.utime(saved.path, ns=(now, now))

    def delete(self, saved: Saved) -> bool:
        """Delete a file; a failure is logged and returns False."""
        try:
            saved.path.unlink(missing_ok=True)
        except OSError as error:
            log.info("%s cannot be deleted: %s", saved.path.name, error)
            return False
        return True

    def _evict(self, keep: Path, budget_bytes: int) -> int:
        """Delete least recently used files, but never `keep`; returns how many."""
        files = self.all()
        total, evicted = sum(saved.size_bytes for saved in files), 0
        for saved in reversed(files):
            if total <= budget_bytes:
                break
            if saved.path != keep and self.delete(saved):
                total -= saved.size_bytes
                evicted += 1
        return evicted


def best(
    candidates: Iterable[Saved], shared_length: Callable[[Sequence[int]], int]
) -> tuple[Saved, int] | None:
    """The file with the longest shared prefix, the first among equals, and its length in tokens.

    `shared_length` returns how many of a file's tokens are a prefix of the prompt.
    """
    found: tuple[Saved, int] | None = None
    for saved in candidates:
        length = int(saved.metadata["tokens"])
        reusable = min(shared_length(saved.tokens), length)
        if reusable > (found[1] if found else 0):
            found = saved, reusable
    return found


def _files(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Path, size and modification time of every snapshot file."""
    try:
        entries = list(os.scandir(folder))
    except OSError:  # the folder does not exist yet
        return
    for entry in entries:
        if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
            with suppress(OSError):  # deleted meanwhile
                status = entry.stat()
                yield Path(entry.path), status.st_size, status.st_mtime_ns


def _read(path: Path, size: int, used: int) -> Saved:
    try:
        with path.open("rb") as file:
            header = snapshot_file.read_header(file)
            snapshot_file.check_version(header.metadata)
            tokens = header.tensors.get("tokens")
            count = header.metadata.get("tokens", "")
            if tokens is None or tokens.dtype != "I32" or tokens.size_bytes > _MAX_TOKEN_BYTES:
                raise snapshot_file.Damaged
            if not (count.isascii() and count.isdecimal() and len(count) < 12):
                raise snapshot_file.Damaged
            ids = bytearray(tokens.size_bytes)
            snapshot_file.read_into(file, tokens, [memoryview(ids)])
    except SnapshotError as fault:
        return Saved(path, size, used, {}, fault=fault)
    except OSError as error:
        fault = SnapshotError(f"The saved session cannot be read: {error.strerror}.")
        return Saved(path, size, used, {}, fault=fault)
    return Saved(path, size, used, header.metadata, bytes(ids))


def _ids(token_bytes: bytes) -> Sequence[int]:
    ids = array("i")
    assert ids.itemsize == 4, "ints of another size"
    ids.frombytes(token_bytes)
    return ids


def _file_name(conversation: str, key: tuple[str, ...], token_bytes: bytes) -> str:
    contents = hashlib.sha256("\n".join(key).encode() + b"\0" + token_bytes).hexdigest()
    return f"{conversation_prefix(conversation)}-{contents[:32]}{SUFFIX}"
