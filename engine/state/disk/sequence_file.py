"""Sequence files: one saved branch of a conversation, as its tokens and where its pages are.

The file's name consists of a hash of its conversation and the name of its last page, its
modification time is that of its last use. The names of the pages follow from the state key, the
tokens and the images. Eight bytes give the length of a JSON header; then follow the token ids (i32) and for each
page the groups of layers that had it (bits of an i32). Rows of images are negative ids, see
`page_file.pages_of`, since another process gives images other ids. The SHA-256 of everything before it ends the
file, in this and every later version, which distinguishes damage from another version. This module
does not import torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, cast

from engine.errors import Fault, FaultKind, SnapshotError
from engine.machine import disk_files
from engine.state.disk import page_file
from engine.state.disk.atomic import REPROCESS, Damaged, NewerVersion, unreadable
from engine.state.disk.page_file import Page, SavedImage, StateKey, pages_of

SUFFIX = ".sequence"
# 1 and 2 had the whole state of a session, 3 a key without the computation. Texts without images
# are still of version 4, and one that has some is of a newer version for those who know none.
VERSION, _VERSION_WITHOUT_IMAGES = 5, 4
_FORMAT = "tokonoma sequence"
_PREFIX_DIGITS, _PAGE_DIGITS = 16, 32  # of the hashes in a file's name
_DIGEST_BYTES = 32
_MAX_FILE_BYTES = 1 << 26  # sixteen million tokens: more than any context
_MAX_GROUPS = 31  # bits of a positive i32
_MAX_ROWS = _MAX_FILE_BYTES // 4  # of all images of a text
_NO_KEY = StateKey("", "", "", ())


@dataclass(frozen=True, slots=True)
class SavedSequence:
    """A verified sequence file; the pages it names are not verified and may be missing."""

    path: Path
    file_bytes: int
    used_ns: int  # time of the last save, or restore
    key: StateKey = _NO_KEY
    metadata: Mapping[str, str] = field(default_factory=dict)
    resume: Mapping[str, str] = field(default_factory=dict)  # state to continue an answer
    token_bytes: bytes = b""  # i32, little-endian
    images: tuple[SavedImage, ...] = ()  # whose rows are the negative ids
    pages: tuple[Page, ...] = ()
    held: tuple[int, ...] = ()  # of each page: groups that were saved, as bits
    fault: SnapshotError | None = None  # why it is unusable; everything above is then empty

    @property
    def tokens(self) -> list[int]:
        """The token ids, and the negative ones of rows of images."""
        return decoded_ids(self.token_bytes)

    @property
    def size_bytes(self) -> int:
        """Size with its pages, those included that other sequences share."""
        return self.file_bytes + sum(
            page_file.file_size(page, size)
            for page, held in zip(self.pages, self.held, strict=True)
            for group, size in enumerate(self.key.page_bytes)
            if held >> group & 1
        )

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of the app saved it, so that its pages are not known."""
        return isinstance(self.fault, NewerVersion)

    def begins_with(self, token_bytes: bytes, images: Sequence[SavedImage]) -> bool:
        """Whether its text begins with these tokens, whose negative ids are rows of the images."""
        same = self.images[: len(images)] == tuple(images)
        return same and self.token_bytes.startswith(token_bytes)

    def belongs_to(self, conversation: str) -> bool:
        """Whether it was saved for this conversation."""
        return self.path.name.startswith(conversation_prefix(conversation))


def conversation_prefix(conversation: str) -> str:
    """First part of the names of a conversation's files: digits of its SHA-256."""
    return hashlib.sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[
        :_PREFIX_DIGITS
    ]


def file_name(conversation: str, pages: Sequence[Page]) -> str:
    """Name of the file of a conversation's sequence, which its last page identifies."""
    return f"{conversation_prefix(conversation)}-{pages[-1].name[:_PAGE_DIGITS]}{SUFFIX}"


def encoded_ids(tokens: Sequence[int]) -> bytes:
    """Token ids as i32, little-endian."""
    return _int32(tokens).tobytes()


def decoded_ids(token_bytes: bytes) -> list[int]:
    """The inverse of `encoded_ids`; a list, since an array never equals a list of the same ids."""
    ids = _int32(())
    ids.frombytes(token_bytes)
    return ids.tolist()


def read_all(folder: Path, known: Mapping[str, SavedSequence] | None = None) -> list[SavedSequence]:
    """Every sequence of a folder, most recently used first, damaged ones with their fault.

    Files that have not changed since `known` (by name) was read are taken from it.
    """
    found: list[SavedSequence] = []
    for path, size, used in _files(folder):
        before = (known or {}).get(path.name)
        same = before and (before.file_bytes, before.used_ns) == (size, used)
        found.append(before if before and same else read(path, size, used))
    return sorted(found, key=lambda saved: saved.used_ns, reverse=True)


def read(path: Path, size: int, used_ns: int) -> SavedSequence:
    """Read and verify a file; a damaged one, or one of another version, gets its fault."""
    try:
        if size > _MAX_FILE_BYTES:
            raise Damaged
        return _parsed(path, path.read_bytes(), used_ns)
    except SnapshotError as fault:
        return SavedSequence(path, size, used_ns, fault=fault)
    except OSError as error:
        return SavedSequence(path, size, used_ns, fault=unreadable(error))


def write(
    path: Path,
    key: StateKey,
    metadata: Mapping[str, str],
    token_bytes: bytes,
    held: Sequence[int],
    resume: Mapping[str, str],
    images: Sequence[SavedImage] = (),
) -> int:
    """Write a file atomically, as used now; returns its size in bytes. Raises OSError."""
    assert len(key.page_bytes) <= _MAX_GROUPS, "too many groups of layers"
    fields: dict[str, object] = {
        "format": _FORMAT,
        "version": VERSION if images else _VERSION_WITHOUT_IMAGES,
        "key": {name: getattr(key, name) for name in _KEY_FIELDS},
        "metadata": dict(metadata),
        "resume": dict(resume),
        "tokens": len(token_bytes) // 4,
    }
    if images:
        fields["images"] = [astuple(one) for one in images]
    header = json.dumps(fields, separators=(",", ":")).encode()
    body = len(header).to_bytes(8, "little") + header + token_bytes + _int32(held).tobytes()
    size = disk_files.write(path, (body, hashlib.sha256(body).digest()))
    with suppress(OSError):
        disk_files.sync_folder(path.parent)
    touch(path)  # the file system's own times are too coarse to order two saves
    return size


_CLOCK_STEP = 1000  # nanoseconds that every file system tells apart; a clock may stand for 16 ms
_touched = 0


def touch(path: Path) -> None:
    """Mark a file as used now, later than any other that this process marked."""
    global _touched
    now = _touched = max(time.time_ns(), _touched + _CLOCK_STEP)
    with suppress(OSError):
        os.utime(path, ns=(now, now))


_KEY_FIELDS = tuple(StateKey.__dataclass_fields__)


def _files(folder: Path) -> list[tuple[Path, int, int]]:
    """Path, size and modification time of every sequence file."""
    found: list[tuple[Path, int, int]] = []
    with suppress(OSError):  # the folder does not exist yet
        for entry in list(os.scandir(folder)):
            if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                with suppress(OSError):  # deleted meanwhile
                    status = entry.stat()
                    found.append((Path(entry.path), status.st_size, status.st_mtime_ns))
    return found


def _parsed(path: Path, whole: bytes, used_ns: int) -> SavedSequence:
    body, digest = whole[:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]
    length = int.from_bytes(body[:8], "little")
    if hashlib.sha256(body).digest() != digest:
        raise Damaged
    if len(body) < 8 or not 0 < length <= len(body) - 8:
        raise Damaged
    try:
        header: object = json.loads(body[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError):
        raise Damaged from None
    fields = cast("dict[str, Any]", header) if isinstance(header, dict) else {}
    if fields.get("format") != _FORMAT:
        raise Damaged
    _check_version(fields.get("version"))
    key, metadata, resume = _key(fields.get("key")), fields.get("metadata"), fields.get("resume")
    count = fields.get("tokens")
    if not _are_texts(metadata) or not _are_texts(resume) or type(count) is not int or count <= 0:
        raise Damaged
    pages = -(-count // page_file.PAGE_TOKENS)
    rest = body[8 + length :]
    if len(rest) != 4 * (count + pages):
        raise Damaged
    token_bytes = rest[: 4 * count]
    images = _images(fields.get("images", []))
    if min(decoded_ids(token_bytes)) < -sum(one.count for one in images):
        raise Damaged
    held = tuple(decoded_ids(rest[4 * count :]))
    if any(not 0 <= groups < 1 << len(key.page_bytes) for groups in held):
        raise Damaged
    return SavedSequence(
        path, len(whole), used_ns, key, metadata, resume, token_bytes, images,
        pages_of(key, token_bytes, images), held,
    )  # fmt: skip


def _check_version(version: object) -> None:
    """Raise SnapshotError for a file of another format version."""
    if version not in (VERSION, _VERSION_WITHOUT_IMAGES):
        if type(version) is int and version > VERSION:
            raise NewerVersion
        fault = Fault(FaultKind.SAVED_VERSION)
        raise SnapshotError(
            "The session was saved by an older version of the app.", REPROCESS, fault
        )


def _key(value: object) -> StateKey:
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    sizes = fields.pop("page_bytes", None)
    if not isinstance(sizes, list) or len(sizes) > _MAX_GROUPS:
        raise Damaged
    if any(type(size) is not int or not 0 < size < 1 << 48 for size in cast("list[object]", sizes)):
        raise Damaged
    if set(fields) != set(_KEY_FIELDS) - {"page_bytes"} or not _are_texts(fields):
        raise Damaged
    return StateKey(page_bytes=tuple(cast("list[int]", sizes)), **fields)


def _images(value: object) -> tuple[SavedImage, ...]:
    found: list[SavedImage] = []
    for one in cast("list[object]", value) if isinstance(value, list) else [None]:
        match one:
            case [str(encoder), str(key), int(count), int(lines), int(columns)]:
                found.append(SavedImage(encoder, key, count, lines, columns))
            case _:
                raise Damaged
    if any(min(one.count, one.lines, one.columns) <= 0 for one in found):
        raise Damaged
    if sum(max(one.count, one.lines, one.columns) for one in found) > _MAX_ROWS:
        raise Damaged
    return tuple(found)


def _are_texts(value: object) -> TypeGuard[dict[str, str]]:
    if not isinstance(value, dict):
        return False
    return all(isinstance(text, str) for text in cast("dict[str, object]", value).values())


def _int32(values: Sequence[int]) -> array[int]:
    ids = array("i", values)
    assert ids.itemsize == 4, "ints of another size"
    return ids
