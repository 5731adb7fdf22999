"""Snapshot file format: safetensors with a SHA-256 digest, written by atomic replace.

Eight bytes give the length of a JSON header; the header and the tensors follow. The last tensor,
`digest`, is the SHA-256 of everything before it, in this and every later version, which
distinguishes damage from another version. This module does not import torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, cast

from engine.errors import Fault, FaultKind, SnapshotError

FORMAT = "tokonoma session"
VERSION = 2  # 1 had quantized keys and values without rotation
REPROCESS = "The conversation is processed again instead."
DIGEST = "digest"
_DIGEST_BYTES = 32
_MAX_HEADER_BYTES = 4 << 20  # a thousand layers need a tenth of it
_CHUNK_BYTES = 1 << 20  # hashed between two checkpoints
_ITEM_BYTES = {"F32": 4, "I32": 4, "F16": 2, "I8": 1, "U8": 1}  # by safetensors dtype


@dataclass(frozen=True, slots=True)
class Entry:
    """Header entry of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Parsed header of a file; not trustworthy until `verify` has passed."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, Entry]
    size_bytes: int  # of the whole file


@dataclass(frozen=True, slots=True)
class Data:
    """One tensor to be written; its bytes are produced lazily, in file order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[memoryview]

    @property
    def size_bytes(self) -> int:
        """Total size of `pieces`."""
        return math.prod(self.shape) * _ITEM_BYTES[self.dtype]


class Damaged(SnapshotError):
    """The file is corrupt, so it can be deleted."""

    def __init__(
        self, message: str = "The saved session is damaged.", remedy: str = REPROCESS
    ) -> None:
        super().__init__(message, remedy)


if sys.platform == "win32":

    def lock(file: BinaryIO) -> bool:
        """No lock needed: Windows does not delete open files."""
        return True
else:
    import fcntl

    def lock(file: BinaryIO) -> bool:
        """Take an exclusive lock until the file is closed; False if another process has it."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the file system does not support locks
        return True


# --- reading ------------------------------------------------------------------------------------


def read_header(file: BinaryIO) -> Header:
    """Parse the header of an open file, checking every length against the file's size.

    Raises SnapshotError for a file that is not a snapshot, is truncated, or has an invalid layout.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 0 < length <= min(size - 8, _MAX_HEADER_BYTES):
        raise Damaged("The file is not a saved session, or it is damaged.")
    try:
        header: object = json.loads(file.read(length).decode("utf-8"))
    except (ValueError, RecursionError):
        raise Damaged("The file is not a saved session, or it is damaged.") from None
    fields = cast("dict[str, Any]", header) if isinstance(header, dict) else {}
    metadata = fields.pop("__metadata__", None)
    if not _are_texts(metadata) or metadata.get("format") != FORMAT:
        raise Damaged("The file is not a saved session.", "Choose another file.")
    tensors, end = _entries(fields, 8 + length)
    if end != size:
        short = f"The saved session is cut short: {size:,} bytes of {end:,}."
        raise Damaged(short) if end > size else Damaged()
    if list(tensors)[-1:] != [DIGEST] or (tensors[DIGEST].dtype, tensors[DIGEST].shape) != (
        "U8",
        (_DIGEST_BYTES,),
    ):
        raise Damaged
    return Header(metadata, tensors, size)


def verify(file: BinaryIO, header: Header, checkpoint: Callable[[], None] = lambda: None) -> None:
    """Raise SnapshotError unless the file's SHA-256 equals its digest."""
    digest, left = hashlib.sha256(), header.size_bytes - _DIGEST_BYTES
    chunk = bytearray(_CHUNK_BYTES)
    view = memoryview(chunk)
    file.seek(0)
    while left:
        checkpoint()
        read = file.readinto(view[: min(left, _CHUNK_BYTES)])  # type: ignore[attr-defined]
        if not read:
            raise Damaged
        digest.update(view[:read])
        left -= read
    if file.read() != digest.digest():
        raise Damaged


def verify_file(path: Path, checkpoint: Callable[[], None] = lambda: None) -> None:
    """Raise SnapshotError unless the file of any version matches its digest."""
    try:
        with path.open("rb") as file:
            verify(file, read_header(file), checkpoint)
    except OSError as error:
        raise SnapshotError(
            f"The saved session cannot be read: {error.strerror or error}.", REPROCESS
        ) from error


def check_version(metadata: Mapping[str, str]) -> None:
    """Raise SnapshotError for a file of another format version."""
    version = metadata.get("version", "")
    if version != str(VERSION):
        newer = version.isdecimal() and len(version) < 10 and int(version) > VERSION
        age = "a newer" if newer else "an older"
        fault = Fault(FaultKind.SAVED_VERSION)
        raise SnapshotError(f"The session was saved by {age} version of the app.", REPROCESS, fault)


def read_into(file: BinaryIO, entry: Entry, targets: Iterable[memoryview]) -> None:
    """Read one tensor into `targets`, in order; their sizes add up to the tensor's."""
    file.seek(entry.start)
    for target in targets:
        if file.readinto(target) != len(target):  # type: ignore[attr-defined]
            raise Damaged


def _entries(fields: Mapping[str, Any], start: int) -> tuple[dict[str, Entry], int]:
    """The contiguous tensors in file order, and the offset at which the last one ends."""
    tensors: dict[str, Entry] = {}
    end = start
    for name, field in fields.items():
        dtype, shape, offsets = (
            (field.get("dtype"), field.get("shape"), field.get("data_offsets"))
            if isinstance(field, dict)
            else (None, None, None)
        )
        if (
            not isinstance(dtype, str)
            or dtype not in _ITEM_BYTES
            or not _are_counts(shape)
            or not _are_counts(offsets)
        ):
            raise Damaged
        size = math.prod(shape) * _ITEM_BYTES[dtype]
        if offsets != [end - start, end - start + size]:
            raise Damaged
        tensors[name] = Entry(dtype, tuple(shape), end, size)
        end += size
    return tensors, end


def _are_counts(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or len(value) > 4:
        return False
    return all(type(part) is int and 0 <= part < 1 << 48 for part in cast("list[object]", value))


def _are_texts(value: object) -> TypeGuard[dict[str, str]]:
    if not isinstance(value, dict):
        return False
    return all(isinstance(text, str) for text in cast("dict[str, object]", value).values())


# --- writing ------------------------------------------------------------------------------------


def write(path: Path, metadata: Mapping[str, str], tensors: Sequence[Data]) -> int:
    """Write a file by atomic replace; returns its size in bytes.

    An existing file at `path` stays until the new one is synced to disk. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            lock(file)
            size = _write_all(file, metadata, tensors)
            if sys.platform != "win32":
                os.replace(temporary, path)  # under the lock, so no cleanup deletes it before
        if sys.platform == "win32":
            os.replace(temporary, path)  # Windows cannot rename an open file
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return size


def remove_leftovers(folder: Path, name: str = "") -> int:
    """Delete temporary files of crashed writers, for one file name or all; returns bytes freed."""
    freed, temporary = 0, re.compile(rf"\.{re.escape(name) or '.+'}\.[0-9a-f]+\.tmp")
    with suppress(OSError):
        for path in list(folder.iterdir()):
            if temporary.fullmatch(path.name):
                freed += _remove_leftover(path)
    return freed


def _write_all(file: BinaryIO, metadata: Mapping[str, str], tensors: Sequence[Data]) -> int:
    digest = hashlib.sha256()
    header = _header(metadata, tensors)
    for piece in (len(header).to_bytes(8, "little"), header):
        digest.update(piece)
        file.write(piece)
    for data in tensors:
        written = 0
        for piece in data.pieces:
            digest.update(piece)
            file.write(piece)
            written += piece.nbytes
        assert written == data.size_bytes, data.name
    file.write(digest.digest())
    file.flush()
    os.fsync(file.fileno())
    return file.tell()


def _header(metadata: Mapping[str, str], tensors: Sequence[Data]) -> bytes:
    fields: dict[str, object] = {
        "__metadata__": {"format": FORMAT, "version": str(VERSION), **metadata}
    }
    end = 0
    for data in (*tensors, Data(DIGEST, "U8", (_DIGEST_BYTES,), ())):
        start, end = end, end + data.size_bytes
        fields[data.name] = {
            "dtype": data.dtype,
            "shape": list(data.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _remove_leftover(path: Path) -> int:
    with suppress(OSError), path.open("rb") as file:
        if not lock(file):
            return 0  # a running process is writing it
        size = path.stat().st_size
        if sys.platform != "win32":
            path.unlink()
            return size
    with suppress(OSError):
        size = path.stat().st_size
        path.unlink()
        return size
    return 0


def _sync_folder(folder: Path) -> None:
    """Flush the folder entry of a renamed file to disk, where the platform supports it."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
