"""Deletion of saved files: pages without a sequence, the least recently used, and old versions.

Pages are deleted under the folder's exclusive lock, so that no process is writing a sequence that
needs them: a save holds the lock shared from its first page until its sequence file is there.
Deletions of conversations are recorded, so that what memory still has of one is not written later.
Losing a file only costs a prefill, so nothing depends on a deletion. This module does not import
torch.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from engine.errors import Fault, FaultKind, SnapshotError
from engine.machine import disk_files
from engine.state.disk import page_file, sequence_file
from engine.state.disk.atomic import REPROCESS, Checkpoint, is_temporary, no_checkpoint
from engine.state.disk.sequence_file import SavedSequence, conversation_prefix

log = logging.getLogger(__name__)

PAGES = "pages"  # folder of the page files, in that of the sequence files
_DELETIONS = ".deletions"  # in `PAGES`: JSON, conversation prefix to a random text
_ALL = "all"  # in place of a prefix
_MOST_DELETIONS = 1000  # recorded
_OLD = re.compile(r"\.?([0-9a-f]{16})-[0-9a-f]{32}\.safetensors(\.[0-9a-f]+\.tmp)?")


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """Files of older versions of the app that were deleted when the store was opened."""

    files: int = 0
    size_bytes: int = 0
    prefixes: frozenset[str] = frozenset()  # of the conversations' hashes

    @property
    def sentence(self) -> str:
        """What to tell the user; empty if nothing was removed."""
        if not self.files:
            return ""
        return (
            "Saved contexts of an older version were removed; "
            "those conversations are read again once."
        )

    def refusal(self, conversation: str) -> SnapshotError | None:
        """The reason why a conversation has nothing saved, if its files were removed."""
        if conversation_prefix(conversation) not in self.prefixes:
            return None
        return SnapshotError(
            "The session was saved by an older version of the app.",
            REPROCESS,
            Fault(FaultKind.SAVED_VERSION),
        )


def remove_old_versions(folder: Path) -> RemovedFiles:
    """Delete the files of versions 1 and 2, which held the whole state of a session."""
    files, size_bytes, prefixes = 0, 0, set[str]()
    for entry in _entries(folder):
        if (match := _OLD.fullmatch(entry.name)) and (size := remove(Path(entry.path))) is not None:
            files, size_bytes = files + 1, size_bytes + size
            if match[2] is None:
                prefixes.add(match[1])
    return RemovedFiles(files, size_bytes, frozenset(prefixes))


def remove(path: Path) -> int | None:
    """Delete a file; returns its size, or None if it cannot be deleted, which is logged."""
    try:
        size = path.stat().st_size
        disk_files.delete(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        log.info("%s cannot be deleted: %s", path.name, error)
        return None
    return size


def total_size(folder: Path) -> int:
    """Bytes of all files of a store, unfinished ones included."""
    return sum(size for _, size in files_of(folder))


def files_of(folder: Path) -> list[tuple[Path, int]]:
    """Every file of a store and of older versions with its size, unfinished ones included."""
    found: list[tuple[Path, int]] = []
    for entry in _entries(folder):
        name = entry.name
        if name.endswith(sequence_file.SUFFIX) or is_temporary(name) or _OLD.fullmatch(name):
            _add(found, entry)
    for entry in _entries(folder / PAGES):
        if page_file.parse_name(entry.name) or is_temporary(entry.name):
            _add(found, entry)
    return found


def record_deletion(folder: Path, conversations: Collection[str] | None) -> None:
    """Change the `deletion_stamp` of these conversations, or of all. Raises OSError."""
    stamps = deletions(folder) if conversations is not None else {}
    for name in [_ALL] if conversations is None else map(conversation_prefix, conversations):
        stamps.pop(name, None)
        stamps[name] = secrets.token_hex(8)
    text = json.dumps(dict(list(stamps.items())[-_MOST_DELETIONS:]))
    disk_files.write(folder / PAGES / _DELETIONS, [text.encode()])


def deletion_stamp(deletions: Mapping[str, str], conversation: str) -> str:
    """A text that changes when another process or thread deletes a conversation's files."""
    return f"{deletions.get(_ALL, '')} {deletions.get(conversation_prefix(conversation), '')}"


def deletions(folder: Path) -> dict[str, str]:
    """The recorded deletions, for `deletion_stamp`."""
    try:
        found: object = json.loads(disk_files.read_bytes(folder / PAGES / _DELETIONS))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    pairs = cast("dict[str, object]", found).items()
    return {name: stamp for name, stamp in pairs if isinstance(stamp, str)}


class Sweep:
    """Deletes files of a store; the caller holds the exclusive lock of its `PAGES` folder."""

    def __init__(self, folder: Path, sequences: Sequence[SavedSequence]) -> None:
        """`sequences` are all in the folder, most recently used first."""
        self._sequences = list(sequences)
        self._total = sum(saved.file_bytes for saved in sequences)
        # What a newer version of the app saved names pages that are not known here.
        self._knows_pages = not any(saved.is_newer for saved in sequences)
        self._named = Counter(page.name for saved in sequences for page in saved.pages)
        self._needed = Counter(part for saved in sequences for part in _parts(saved))
        self._files: dict[str, dict[int, tuple[Path, int]]] = {}  # by page name and group
        self._unfinished = [Path(e.path) for e in _entries(folder) if _is_unfinished(e.name)]
        for entry in _entries(folder / PAGES):
            if part := page_file.parse_name(entry.name):
                with suppress(OSError):
                    place = Path(entry.path), entry.stat().st_size
                    self._files.setdefault(part[0], {})[part[1]] = place
                    self._total += place[1]
            elif is_temporary(entry.name):
                self._unfinished.append(Path(entry.path))

    @property
    def total_bytes(self) -> int:
        """Size of the sequence and page files that are left."""
        return self._total

    def remove_unreferenced(self, checkpoint: Checkpoint = no_checkpoint) -> int:
        """Delete pages no sequence has, and files of crashed writers; returns the bytes freed.

        While there are sequences of a newer version of the app, no pages are deleted.
        """
        freed = 0
        for path in self._unfinished:
            checkpoint()
            freed += remove(path) or 0
        before = self._total
        for name in [name for name in self._files if self._knows_pages and not self._named[name]]:
            checkpoint()
            self._remove_parts(name, list(self._files[name]))
        return freed + before - self._total

    def evict(
        self, budget_bytes: int, keep: Path | None, checkpoint: Checkpoint = no_checkpoint
    ) -> int:
        """Delete until the total is at most `budget_bytes`; returns the number of sequences.

        First the parts that no sequence needs, though a branch from an earlier position would;
        then least recently used sequences with what only they need, but never `keep`.
        """
        evicted = 0
        for name, parts in list(self._files.items()):
            spare = [group for group in parts if not self._needed[name, group]]
            if spare and self._total > budget_bytes:
                checkpoint()
                self._remove_parts(name, spare)
        for saved in reversed(self._sequences):
            if self._total <= budget_bytes:
                break
            checkpoint()
            if saved.path != keep and remove(saved.path) is not None:
                evicted += 1
                self._total -= saved.file_bytes
                self._release(saved)
        return evicted

    def _release(self, saved: SavedSequence) -> None:
        """Delete the parts that only this sequence needed."""
        self._needed.subtract(_parts(saved))
        for page in saved.pages:
            parts = self._files.get(page.name, {})
            self._remove_parts(page.name, [g for g in parts if not self._needed[page.name, g]])

    def _remove_parts(self, name: str, groups: Iterable[int]) -> None:
        parts = self._files.get(name, {})
        for group in groups:
            path, size = parts[group]
            if remove(path) is not None:
                del parts[group]
                self._total -= size


def _parts(saved: SavedSequence) -> Iterable[tuple[str, int]]:
    """Page name and group of every part that a sequence needs."""
    groups = range(len(saved.key.page_bytes))
    for page, held in zip(saved.pages, saved.held, strict=True):
        yield from ((page.name, group) for group in groups if held >> group & 1)


def _is_unfinished(name: str) -> bool:
    """Whether a file of the store's folder is one that a crashed writer left."""
    return is_temporary(name) and sequence_file.SUFFIX in name


def _add(found: list[tuple[Path, int]], entry: os.DirEntry[str]) -> None:
    with suppress(OSError):  # deleted meanwhile
        found.append((Path(entry.path), entry.stat().st_size))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The folder's entries; none if it does not exist yet."""
    try:
        return list(os.scandir(folder))
    except OSError:
        return []
