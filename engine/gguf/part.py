"""One GGUF file, memory-mapped: header, metadata and tensor directory, fully validated on open.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Where the format is not specific
(tensors packed without gaps), ggml's reader decides: a file it rejects is rejected here too.
"""

from __future__ import annotations

import math
import mmap
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import Fault, FaultKind, FileLook, ModelFileError, UnsupportedModel
from engine.gguf.tensor_info import Marks, TensorInfo, format_of, marks_of, padded, place
from engine.gguf.two_bit import LayoutEvidence, resolve_layout
from engine.gguf.values import DAMAGED, Cursor, Kind, Metadata, Stored, shown
from engine.machine.open_file import OpenFile
from kernels.mapped import MappedFile

_ALIGNMENT_KEY = "general.alignment"
_DEFAULT_ALIGNMENT = 32  # bytes
_MAX_ALIGNMENT = 1 << 20
_VERSIONS = (2, 3)
_LATEST_VERSION = 99  # a larger number is damage, not a format of the future
_MAX_KEYS = 1 << 14
_MAX_TENSORS = 1 << 16
_MAX_KEY_BYTES = 1_024
_MAX_NAME_BYTES = 64
_MAX_DIMENSIONS = 4
_MIN_KEY_BYTES = 14  # length, one character, kind, one byte of value
_MIN_TENSOR_BYTES = 33  # length, one character, count, one dimension, format, offset


@dataclass(frozen=True, slots=True)
class Part:
    """One memory-mapped file of a model."""

    source: OpenFile
    buffer: MappedFile
    version: int
    metadata: Metadata
    entries: dict[str, slice]  # byte range of each key with its value
    tensors: list[TensorInfo]  # in file order
    marks: Marks
    two_bit: LayoutEvidence | None  # of its 2-bit tensors; None if it has none

    @property
    def path(self) -> Path:
        """Its name when it was opened."""
        return self.source.path

    def check(self) -> None:
        """Raise ModelFileError if the file was written to since it was opened, or cannot be read.

        What was read is then of no use.
        """
        self.source.check()
        if self.buffer.was_cut:
            raise ModelFileError(
                f"{shown(self.path.name)} cannot be read: the disk has failed.",
                "Check the disk, and get another copy of the file.",
                Fault(FaultKind.UNREADABLE, "the disk has failed"),
            )

    def close(self) -> None:
        """Unmap the file; if views of it are alive, it is unmapped with the last one."""
        _close(self.source, self.buffer)

    def drop_pages(self, offset: int, size_bytes: int) -> None:
        """Drop the resident pages of a byte range, where the system supports madvise."""
        if hasattr(mmap, "MADV_DONTNEED"):
            start = offset // mmap.PAGESIZE * mmap.PAGESIZE
            self.buffer.madvise(mmap.MADV_DONTNEED, start, offset + size_bytes - start)


def read_part(path: Path, index: int, marks: Marks | None = None) -> Part:
    """Map and validate one file; raises ModelFileError or UnsupportedModel after unmapping it.

    `marks` are those of the first part of a split model: the others need not repeat its keys.
    """
    source, buffer = _map(path)
    try:
        cursor = Cursor(buffer)
        version = _read_version(cursor)
        tensor_count = cursor.count("tensors", _MIN_TENSOR_BYTES, _MAX_TENSORS)
        key_count = cursor.count("keys", _MIN_KEY_BYTES, _MAX_KEYS)
        metadata, entries = _read_metadata(cursor, key_count)
        alignment = _alignment(metadata)
        marks = marks or marks_of(metadata)
        infos = [_read_tensor(cursor, number, index, marks) for number in range(tensor_count)]
        start = padded(cursor.position, alignment)
        infos, two_bit = resolve_layout(infos, marks, buffer, start, alignment)
        tensors = place(infos, start, cursor.end, alignment)
        keys = Metadata(metadata)
        part = Part(source, buffer, version, keys, entries, tensors, marks, two_bit)
        part.check()
    except BaseException:
        _close(source, buffer)
        raise
    return part


def _close(source: OpenFile, buffer: MappedFile) -> None:
    source.close()
    with suppress(BufferError):
        buffer.close()


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the first bytes of a GGUF file say, as far as they reach."""

    tensor_count: int
    metadata: Metadata  # the keys that lie wholly in these bytes
    main_format: str  # of most bytes in matrices whose entries lie in these bytes; "": of none
    complete: bool  # the whole header lies in these bytes


def read_beginning(data: bytes, name: str) -> Beginning:
    """Read the header of the file `name` from its first bytes, which may end anywhere.

    Raises ModelFileError or UnsupportedModel where they show a file that cannot be used.
    """
    _check_magic(data[:64], name)
    cursor = Cursor(data)
    _read_version(cursor)
    tensor_count, key_count = cursor.u64(), cursor.u64()
    metadata: dict[str, Stored] = {}
    sizes: Counter[str] = Counter()
    complete = True
    try:
        for _ in range(key_count):
            _read_key(cursor, metadata)
        marks = marks_of(metadata)
        for number in range(tensor_count):
            info = _read_tensor(cursor, number, 0, marks)
            if len(info.shape) > 1:
                sizes[info.format.name] += info.size_bytes
    except ModelFileError as error:
        if error.fault.kind is not FaultKind.INCOMPLETE:
            raise
        complete = False
    main = sizes.most_common(1)[0][0] if sizes else ""
    return Beginning(tensor_count, Metadata(metadata), main, complete)


def _map(path: Path) -> tuple[OpenFile, MappedFile]:
    """Map a file read-only; only regular files, since opening a pipe could block."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ModelFileError(
                f"{shown(path.name or str(path))} is not a file.",
                "Choose a GGUF file.",
                Fault(FaultKind.NOT_A_FILE),
            )
        file = OpenFile(path)
        try:
            _check_magic(bytes(file.read(0, min(file.size_bytes, 64))), path.name)
            return file, MappedFile(file.fileno())
        except BaseException:
            file.close()
            raise
    except FileNotFoundError:
        raise ModelFileError(
            f"There is no file {str(path)!r}.",
            "Check the path, or download the model again.",
            Fault(FaultKind.NO_FILE),
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelFileError(
            f"{shown(path.name)} cannot be read: {reason}.",
            "Check the file's permissions and the disk it lies on.",
            Fault(FaultKind.UNREADABLE, str(reason)),
        ) from None


def _check_magic(start: bytes, name: str) -> None:
    """Raise ModelFileError unless a file that starts so is GGUF."""
    if start[:4] != b"GGUF":
        look = look_of(start)
        raise ModelFileError(
            f"{shown(name)} is not a GGUF file: {_described(look, start)}.",
            "Choose a file that ends in .gguf, or download it again.",
            Fault(FaultKind.NOT_A_MODEL, look),
        )


_LOOKS = (
    (FileLook.LFS_POINTER, (b"version https://git-lfs",)),
    (FileLook.ZIP, (b"PK\3\4",)),
    (FileLook.GGML, (b"lmgg", b"fmgg", b"tjgg", b"algg")),
    (FileLook.JPEG, (b"\xff\xd8\xff",)),
    (FileLook.PNG, (b"\x89PNG",)),
    (FileLook.PDF, (b"%PDF",)),
)
_DESCRIPTIONS = {
    FileLook.EMPTY: "it is empty",
    FileLook.ZEROS: "it holds only zeros, like a download that has not started",
    FileLook.LFS_POINTER: "it is a Git LFS pointer instead of the file itself",
    FileLook.ZIP: "it looks like a ZIP archive or a PyTorch checkpoint",
    FileLook.SAFETENSORS: "it looks like a safetensors file",
    FileLook.WEB_PAGE: "it looks like a web page, perhaps from a failed download",
    FileLook.GGML: "it is in the GGML format that GGUF replaced in 2023",
    FileLook.JPEG: "it looks like a JPEG image",
    FileLook.PNG: "it looks like a PNG image",
    FileLook.PDF: "it looks like a PDF document",
}


def look_of(start: bytes) -> FileLook:
    """What a file that is not GGUF looks like by its first 64 bytes."""
    if not start:
        return FileLook.EMPTY
    if not start.strip(b"\0"):
        return FileLook.ZEROS
    for look, beginnings in _LOOKS:
        if start.startswith(beginnings):
            return look
    if start[8:9] == b"{":
        return FileLook.SAFETENSORS
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return FileLook.WEB_PAGE
    text = start.decode("utf-8", "ignore")  # the last character may be cut
    control = any(not one.isprintable() and not one.isspace() for one in text)
    cut = len(start) - len(text.encode())
    return FileLook.UNKNOWN if control or cut > 3 or len(text) < 8 else FileLook.TEXT


def _described(look: FileLook, start: bytes) -> str:
    beginning = f"it begins with {shown(start[:4].decode('latin-1'))} instead of 'GGUF'"
    return _DESCRIPTIONS.get(look, beginning)


def _read_version(cursor: Cursor) -> int:
    cursor.position = 4
    version = cursor.u32()
    if version in _VERSIONS:
        return version
    if int.from_bytes(version.to_bytes(4, "big"), "little") in (1, *_VERSIONS):
        raise UnsupportedModel(
            "The file is a big-endian GGUF, which this version cannot read.",
            "Choose the little-endian file of this model.",
        )
    if version == 1:
        raise UnsupportedModel(
            "The file is GGUF version 1, an obsolete format of 2023.",
            "Choose a newer file of this model.",
        )
    if _VERSIONS[-1] < version <= _LATEST_VERSION:
        raise UnsupportedModel(
            f"The file is GGUF version {version:,}; this program reads versions 2 and 3.",
            "Update the program, or choose another file of this model.",
        )
    raise ModelFileError(f"The file is GGUF version {version:,}, which does not exist.", DAMAGED)


def _read_metadata(cursor: Cursor, count: int) -> tuple[dict[str, Stored], dict[str, slice]]:
    metadata: dict[str, Stored] = {}
    entries: dict[str, slice] = {}
    for number in range(1, count + 1):
        start = cursor.position
        cursor.subject = f"key number {number:,}"
        key = _read_key(cursor, metadata)
        entries[key] = slice(start, cursor.position)
    return metadata, entries


def _read_key(cursor: Cursor, metadata: dict[str, Stored]) -> str:
    """Read one key with its value into `metadata`; returns the key."""
    key = cursor.name(_MAX_KEY_BYTES)
    cursor.subject = f"the key {shown(key)}"
    if key in metadata:
        raise ModelFileError(f"The key {shown(key)} is in the file twice.", DAMAGED)
    kind = cursor.u32()
    if key == _ALIGNMENT_KEY and kind != Kind.UINT32:
        raise ModelFileError(
            f"The key '{_ALIGNMENT_KEY}' is stored as kind {kind:,}; it must be UINT32 (4).",
            DAMAGED,
        )
    metadata[key] = cursor.value(kind)
    return key


def _alignment(metadata: dict[str, Stored]) -> int:
    alignment = metadata.get(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    assert isinstance(alignment, int)
    if not 8 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ModelFileError(
            f"The key '{_ALIGNMENT_KEY}' is {alignment:,}; a power of two from 8 to "
            f"{_MAX_ALIGNMENT:,} is wanted.",
            DAMAGED,
        )
    return alignment


def _read_tensor(cursor: Cursor, number: int, part: int, marks: Marks) -> TensorInfo:
    """Read one tensor directory entry; its offset is relative to the start of the data."""
    cursor.subject = f"tensor number {number + 1:,}"
    name = cursor.name(_MAX_NAME_BYTES)
    cursor.subject = f"the entry of the tensor {shown(name)}"
    dimensions = cursor.u32()
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise ModelFileError(
            f"The tensor {shown(name)} has {dimensions:,} dimensions; 1 to 4 are possible.", DAMAGED
        )
    shape = tuple(cursor.u64() for _ in range(dimensions))[::-1]
    if not 0 < math.prod(shape) < 1 << 63:
        raise ModelFileError(f"The tensor {shown(name)} has the shape {list(shape)}.", DAMAGED)
    form = format_of(name, cursor.u32(), marks)
    if shape[-1] % form.block:
        raise ModelFileError(
            f"The tensor {shown(name)} has rows of {shape[-1]:,} weights, which {form.name} "
            f"cannot store: it packs {form.block} at a time.",
            DAMAGED,
        )
    size = math.prod(shape) // form.block * form.size
    return TensorInfo(name, shape, form, cursor.u64(), size, part)
