"""Session file: one sequence with its KV pages in a single file, for the command line.

Eight bytes give the length of a JSON header; then follow the token ids (i32), the parts of all
pages, and the SHA-256 of everything before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from engine.adapters.stack import Stack
from engine.core.scheduler import Scheduler
from engine.errors import Fault, FaultKind, SnapshotError
from engine.loading.loader import LoadedModel
from engine.state.disk import atomic, restore, resume
from engine.state.disk.atomic import REPROCESS, Damaged, unreadable
from engine.state.disk.disk_tier import metadata_of
from engine.state.disk.page_file import StateKey
from engine.state.disk.page_memory import PageTarget, page_bytes
from engine.state.disk.sequence_file import SavedSequence, encoded_ids
from engine.state.pages import Page
from engine.state.sequence import Sequence as CachedSequence
from kernels.kv_pages import PAGE_TOKENS

_FORMAT, _VERSION = "tokonoma session", 4  # 1 and 2 were safetensors
_KEY_TEXTS = ("model_sha256", "stack", "cache", "layout", "computation")
_MAX_HEADER_BYTES = 4 << 20
_DIGEST_BYTES = 32
_CHUNK_BYTES = 1 << 20
_LEFTOVER_SECONDS = 3600

Pages = tuple[Page | None, ...]


def save(
    path: Path,
    scheduler: Scheduler,
    stack: Stack,
    tokens: list[int],
    key: StateKey,
    model: LoadedModel,
) -> int:
    """Write the cached tokens of a text atomically; returns the bytes written, 0 if none is cached.

    Raises OSError.
    """
    match = scheduler.tree.match(stack.key, tokens)
    if not match.length:
        return 0
    state = scheduler.interrupted(stack.key, tokens)
    fields = {
        "format": _FORMAT,
        "version": _VERSION,
        **{name: getattr(key, name) for name in _KEY_TEXTS},
        "page_bytes": key.page_bytes,
        "metadata": metadata_of(model, stack),
        "resume": resume.encoded(state, tokens[match.length :]),
        "tokens": match.length,
        "held": [[page is not None for page in pages] for pages in match.pages],
    }
    header = json.dumps(fields).encode()
    pieces = _pieces(header, encoded_ids(tokens[: match.length]), match.pages)
    return atomic.write(path, pieces)


def load(path: Path, scheduler: Scheduler, stack: Stack, key: StateKey) -> list[int]:
    """Read a file into the scheduler's tree; returns all its tokens, pending ones included.

    Raises SnapshotError for a damaged file and for one of another model, stack or cache type.
    """
    try:
        with path.open("rb") as file:
            return _load(file, path, scheduler, stack, key)
    except OSError as error:
        raise unreadable(error) from error


def _load(
    file: BinaryIO, path: Path, scheduler: Scheduler, stack: Stack, key: StateKey
) -> list[int]:
    reader = _HashedReader(file)
    fields = _header(reader)
    tokens = _count(fields, "tokens")
    if 4 * tokens > os.fstat(file.fileno()).st_size:
        raise Damaged("The saved session is cut short.")
    held = _held(fields, tokens)
    ids = reader.read(4 * tokens)
    saved = SavedSequence(path, 0, 0, _key(fields), _texts(fields, "metadata"), token_bytes=ids)
    restore.check_origin(saved, key, scheduler.context)
    found = _texts(fields, "resume")
    all_tokens = [*saved.tokens, *resume.pending(found)]
    if not 0 <= min(all_tokens) <= max(all_tokens) < scheduler.runner.model.embedding.shape[0]:
        raise Damaged
    pool, pages = scheduler.pool, list[Pages]()
    sequence = CachedSequence(pool, scheduler.context)
    try:
        for groups in held:
            pages.append(
                tuple(pool.take(group) if has else None for group, has in enumerate(groups))
            )
            for page in pages[-1]:
                if page is not None:
                    target = PageTarget(page)
                    reader.read_into(target.view)
                    target.finish()
        reader.check_end()
        sequence.adopt(saved.tokens, pages)
        scheduler.tree.insert(stack.key, sequence)
    finally:
        sequence.release()
        for page in (page for some in pages for page in some):
            if page is not None:
                pool.release(page)
    if state := resume.sampler_state(found):
        scheduler.remember(stack.key, all_tokens, state)
    return all_tokens


def remove_leftovers(path: Path) -> None:
    """Delete what crashed writers of this file left; a running one finishes within an hour."""
    with suppress(OSError):
        for other in list(path.parent.iterdir()):
            is_ours = other.name.startswith(f".{path.name}.") and atomic.is_temporary(other.name)
            if is_ours and other.stat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                other.unlink()


class _HashedReader:
    """Reads a file in order and hashes it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """So many bytes."""
        found = bytearray(size)
        self.read_into(memoryview(found))
        return bytes(found)

    def read_into(self, target: memoryview) -> None:
        """As many bytes as `target` has."""
        for at in range(0, len(target), _CHUNK_BYTES):
            chunk = target[at : at + _CHUNK_BYTES]
            if self._file.readinto(chunk) != len(chunk):  # type: ignore[attr-defined]
                raise Damaged("The saved session is cut short.")
            self._digest.update(chunk)

    def check_end(self) -> None:
        """Raise Damaged unless the digest of everything read follows, and then nothing."""
        found = self._file.read(_DIGEST_BYTES + 1)
        if len(found) < _DIGEST_BYTES:
            raise Damaged("The saved session is cut short.")
        if found != self._digest.digest():
            raise Damaged


def _pieces(header: bytes, ids: bytes, pages: list[Pages]) -> Iterator[bytes | memoryview]:
    digest = hashlib.sha256()
    parts = (page_bytes(page) for some in pages for page in some if page is not None)
    for piece in (len(header).to_bytes(8, "little"), header, ids, *parts):
        digest.update(piece)
        yield piece
    yield digest.digest()


def _header(reader: _HashedReader) -> Mapping[str, Any]:
    length = int.from_bytes(reader.read(8), "little")
    if not 0 < length <= _MAX_HEADER_BYTES:
        raise Damaged("The file is not a saved session, or it is damaged.")
    try:
        found: object = json.loads(reader.read(length).decode("utf-8"))
    except (ValueError, RecursionError):
        raise Damaged("The file is not a saved session, or it is damaged.") from None
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if "__metadata__" in fields or (
        fields.get("format") == _FORMAT and fields.get("version") != _VERSION
    ):
        newer = isinstance(fields.get("version"), int) and fields["version"] > _VERSION
        age = "a newer" if newer else "an older"
        raise SnapshotError(
            f"The session was saved by {age} version of the app.",
            REPROCESS,
            Fault(FaultKind.SAVED_VERSION),
        )
    if fields.get("format") != _FORMAT:
        raise Damaged("The file is not a saved session.", "Choose another file.")
    return fields


def _key(fields: Mapping[str, Any]) -> StateKey:
    texts = [fields.get(name) for name in _KEY_TEXTS]
    sizes = fields.get("page_bytes")
    if not all(isinstance(text, str) for text in texts) or not isinstance(sizes, list):
        raise Damaged
    found = dict(zip(_KEY_TEXTS, cast("list[str]", texts), strict=True))
    return StateKey(page_bytes=tuple(cast("list[int]", sizes)), **found)


def _held(fields: Mapping[str, Any], tokens: int) -> list[list[bool]]:
    """For each page the groups that have it."""
    found, sizes = fields.get("held"), fields.get("page_bytes")
    if not isinstance(found, list) or not isinstance(sizes, list):
        raise Damaged
    rows = cast("list[object]", found)
    if len(rows) != -(-tokens // PAGE_TOKENS):
        raise Damaged
    for row in rows:
        is_row = isinstance(row, list) and len(cast("list[object]", row)) == len(sizes)
        if not is_row or not all(type(one) is bool for one in cast("list[object]", row)):
            raise Damaged
    return cast("list[list[bool]]", rows)


def _count(fields: Mapping[str, Any], name: str) -> int:
    found = fields.get(name)
    if type(found) is not int or not 0 < found < 1 << 31:
        raise Damaged
    return found


def _texts(fields: Mapping[str, Any], name: str) -> dict[str, str]:
    found = fields.get(name)
    if not isinstance(found, dict):
        raise Damaged
    texts = cast("dict[object, object]", found)
    if not all(isinstance(one, str) for pair in texts.items() for one in pair):
        raise Damaged
    return cast("dict[str, str]", texts)
