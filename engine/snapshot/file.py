"""The file of a saved session: written whole or not at all, and checked to the last bit.

It is a safetensors file: eight bytes that give the length of a JSON header, the header, and tensors
one after the other. The last tensor, `digest`, is the SHA-256 of everything before it, in this and
every later version; so damage is told from a file of another version. Nothing here needs torch.
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

from engine.errors import SnapshotError

FORMAT = "tokonoma session"
VERSION = 2  # 1: codes of keys and values that were not rotated
REPROCESS = "The conversation is read again instead."
DIGEST = "digest"
_DIGEST_BYTES = 32
_LARGEST_HEADER = 4 << 20  # bytes; a thousand layers take a tenth of it
_PIECE = 1 << 20  # bytes hashed between two looks at Cancel
_WIDTHS = {"F32": 4, "I32": 4, "F16": 2, "I8": 1, "U8": 1}  # bytes, by safetensors' names


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file, as the header describes it."""

    dtype: str
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself; true only once `verify` has passed."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, Entry]
    size_bytes: int  # of the whole file


@dataclass(frozen=True, slots=True)
class Data:
    """One tensor to be written; its bytes are asked for when its turn comes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[memoryview]

    @property
    def size_bytes(self) -> int:
        """Bytes that `pieces` must have together."""
        return math.prod(self.shape) * _WIDTHS[self.dtype]


class Damaged(SnapshotError):
    """The file is not as it was written, so it is of no use to anybody."""

    def __init__(
        self, what: str = "The saved session is damaged.", remedy: str = REPROCESS
    ) -> None:
        super().__init__(what, remedy)


if sys.platform == "win32":

    def lock(file: BinaryIO) -> bool:
        """Nothing to do: an open file cannot be deleted there."""
        return True
else:
    import fcntl

    def lock(file: BinaryIO) -> bool:
        """Mark a file as being written; the mark goes with the process. False: another has it."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks
        return True


# --- reading ------------------------------------------------------------------------------------


def read_header(file: BinaryIO) -> Header:
    """The header of an open file, every length checked against the file's own before it is used.

    Raises SnapshotError for a file that is no saved session, is cut short, or is laid out wrongly.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 0 < length <= min(size - 8, _LARGEST_HEADER):
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
    """Raise SnapshotError unless every bit of the file is as it was written."""
    digest, left = hashlib.sha256(), header.size_bytes - _DIGEST_BYTES
    piece = bytearray(_PIECE)
    view = memoryview(piece)
    file.seek(0)
    while left:
        checkpoint()
        read = file.readinto(view[: min(left, _PIECE)])  # type: ignore[attr-defined]
        if not read:
            raise Damaged
        digest.update(view[:read])
        left -= read
    if file.read() != digest.digest():
        raise Damaged


def verify_file(path: Path, checkpoint: Callable[[], None] = lambda: None) -> None:
    """Raise SnapshotError unless the file is as it was written, whatever version wrote it."""
    try:
        with path.open("rb") as file:
            verify(file, read_header(file), checkpoint)
    except OSError as error:
        raise SnapshotError(
            f"The saved session cannot be read: {error.strerror or error}.", REPROCESS
        ) from error


def check_version(metadata: Mapping[str, str]) -> None:
    """Raise SnapshotError for a file of a version that is not this one."""
    version = metadata.get("version", "")
    if version != str(VERSION):
        newer = version.isdecimal() and len(version) < 10 and int(version) > VERSION
        age = "a newer" if newer else "an older"
        raise SnapshotError(f"The session was saved by {age} version of the app.", REPROCESS)


def read_into(file: BinaryIO, entry: Entry, targets: Iterable[memoryview]) -> None:
    """Fill `targets` in order with the bytes of one tensor; together they are as long as it is."""
    file.seek(entry.start)
    for target in targets:
        if file.readinto(target) != len(target):  # type: ignore[attr-defined]
            raise Damaged


def _entries(fields: Mapping[str, Any], start: int) -> tuple[dict[str, Entry], int]:
    """The tensors in the order of the file, one after the other, and where the last one ends."""
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
            or dtype not in _WIDTHS
            or not _are_counts(shape)
            or not _are_counts(offsets)
        ):
            raise Damaged
        size = math.prod(shape) * _WIDTHS[dtype]
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
    """Write a file that is there completely or not at all; returns its size in bytes.

    What was at `path` before stays until the new file is on the disk. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            lock(file)
            size = _write_all(file, metadata, tensors)
            if sys.platform != "win32":
                os.replace(temporary, path)  # while the lock still tells that it is in use
        if sys.platform == "win32":
            os.replace(temporary, path)  # an open file cannot be renamed there
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _settle(path.parent)
    return size


def remove_leftovers(folder: Path, name: str = "") -> int:
    """Delete what writers that crashed have left, of one file or of all; returns bytes freed."""
    freed, ours = 0, re.compile(rf"\.{re.escape(name) or '.+'}\.[0-9a-f]+\.tmp")
    with suppress(OSError):
        for path in list(folder.iterdir()):
            if ours.fullmatch(path.name):
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
            return 0  # somebody is writing it
        size = path.stat().st_size
        if sys.platform != "win32":
            path.unlink()
            return size
    with suppress(OSError):
        size = path.stat().st_size
        path.unlink()
        return size
    return 0


def _settle(folder: Path) -> None:
    """Have the new name on the disk too, where a folder can be asked for that."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
