"""The folder of saved sessions: which one helps most, and which make room for new ones.

Nothing here needs torch, so the window can say how much they take before it is loaded. A file is
named after its conversation and its contents, both hashed; its time of change is that of its last
use. The folder may be emptied at any moment by anybody: every file in it only saves time.
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

_MOST_TOKEN_BYTES = 1 << 26  # sixteen million tokens: more than any context
_MEGABYTE = 1e6


def check_budget(size_bytes: int, budget_bytes: int) -> None:
    """Raise RequestError for a session that alone takes more than all together may.

    It is not saved at all then: it would have to be the only one, and the next one would evict it.
    """
    if size_bytes > budget_bytes:
        raise RequestError(
            f"Saved, this conversation takes {size_bytes / _MEGABYTE:,.0f} MB, and saved "
            f"reading may take {budget_bytes / _MEGABYTE:,.0f} MB in all.",
            "Allow more in the settings.",
        )


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved session as its header tells, unverified."""

    path: Path
    size_bytes: int
    used_ns: int  # when it was last written or read
    metadata: Mapping[str, str]  # empty where `fault` says why
    token_bytes: bytes = b""
    fault: SnapshotError | None = None

    @property
    def tokens(self) -> Sequence[int]:
        """The ids it holds."""
        return _ids(self.token_bytes)

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for sessions that can stand in for each other."""
        return tuple(self.metadata.get(name, "") for name in ("model_sha256", "stack", "cache"))

    def belongs_to(self, conversation: str) -> bool:
        """Whether it was saved for this conversation."""
        return self.path.name.startswith(conversation_prefix(conversation))


class Snapshots:
    """The saved sessions of one folder; may be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, Saved] = {}
        snapshot_file.remove_leftovers(folder)

    def all(self) -> list[Saved]:
        """Every file, the one used last first; headers of known files are not read again."""
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
        """Have `write` make a file, and make room: its path, its bytes, how many had to go.

        Files whose tokens the new one begins with are superseded; after them the least recently
        used ones go until all together take no more than `budget_bytes`. A session of `size_bytes`
        above the budget is not saved at all: RequestError. Raises OSError.
        """
        path = self._folder / _file_name(conversation, key, token_bytes)
        size = write(path)
        for saved in self.all():
            shorter = len(saved.token_bytes) < len(token_bytes)
            if shorter and saved.key == key and token_bytes.startswith(saved.token_bytes):
                self.delete(saved)
        return path, size, self._evict(path, budget_bytes)

    def touch(self, saved: Saved) -> None:
        """Note that a file was used."""
        now = time.time_ns()
        with suppress(OSError):
            os.utime(saved.path, ns=(now, now))

    def delete(self, saved: Saved) -> bool:
        """Delete a file; one that cannot go is left and logged."""
        try:
            saved.path.unlink(missing_ok=True)
        except OSError as error:
            log.info("%s cannot be deleted: %s", saved.path.name, error)
            return False
        return True

    def _evict(self, keep: Path, budget_bytes: int) -> int:
        """Delete what was used longest ago, but never `keep`; returns how many went."""
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
    candidates: Iterable[Saved], agreeing: Callable[[Sequence[int]], int]
) -> tuple[Saved, int] | None:
    """The file that spares the most tokens, the first among equals, and how many.

    `agreeing` counts how many of a file's tokens the wanted prompt begins with.
    """
    found: tuple[Saved, int] | None = None
    for saved in candidates:
        length = int(saved.metadata["tokens"])
        spared = min(agreeing(saved.tokens), length)
        if spared > (found[1] if found else 0):
            found = saved, spared
    return found


def _files(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Path, bytes and time of change of every file of ours."""
    try:
        entries = list(os.scandir(folder))
    except OSError:  # not there yet
        return
    for entry in entries:
        if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
            with suppress(OSError):  # gone meanwhile
                status = entry.stat()
                yield Path(entry.path), status.st_size, status.st_mtime_ns


def _read(path: Path, size: int, used: int) -> Saved:
    try:
        with path.open("rb") as file:
            header = snapshot_file.read_header(file)
            snapshot_file.check_version(header.metadata)
            tokens = header.tensors.get("tokens")
            count = header.metadata.get("tokens", "")
            if tokens is None or tokens.dtype != "I32" or tokens.size_bytes > _MOST_TOKEN_BYTES:
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
