"""Page files: the bytes of 256 consecutive positions in one group of layers, named by their origin.

The name of a page is a hash over its tokens, the name of the page before it, and the key of the
state, so it determines the page's contents: equal prefixes of two conversations have equal names
and share files. Rows of images are negative ids, see `pages_of`: the name of a page with some is a
hash over what these images are, too. A page has one file for each group of layers, since a group with an attention
window needs only the last pages of a sequence. Integers are little-endian:

    magic [8], version u32, group u32, name [32], tokens u32, zero u32, size of the part u64
    token ids i32 [tokens]
    the part
    SHA-256 of everything before [32]

This module does not import torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from engine.machine import disk_files
from engine.state.disk.atomic import Checkpoint, Damaged, no_checkpoint, unreadable

PAGE_TOKENS = (
    256  # as in kernels.states.layer_state: the window imports this module, and no kernels
)
SUFFIX = ".page"
_VERSION = 1
_MAGIC = b"tokopage"
_HEADER = struct.Struct("<8sII32sIIQ")
_TOKEN_BYTES = 4
_DIGEST_BYTES = 32
_CHUNK_BYTES = 1 << 20  # read or written, and hashed, between two checkpoints


@dataclass(frozen=True, slots=True)
class StateKey:
    """What the bytes of a page depend on, beside its tokens and those before them."""

    model_sha256: str
    stack: str  # key of the adapter stack; empty: none
    cache: str  # type of the KV cache
    page_bytes: tuple[int, ...]  # of each group of layers
    layout: str = ""  # names the order of the bytes in a page
    computation: str = (
        ""  # how the model computes as it was loaded, see `engine.models.computation`
    )

    @property
    def root(self) -> bytes:
        """Hash that stands for the page before the first one."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).digest()


@dataclass(frozen=True, slots=True)
class SavedImage:
    """An image of a saved text, by all that its rows and their places depend on."""

    encoder: str  # key of the picture encoder, see `disk_tier.encoder_key`
    key: str  # of `engine.vision.registry`: SHA-256 of its pixels
    count: int  # rows
    lines: int  # rows of them, one below the other
    columns: int  # rows of a line

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).digest()


@dataclass(frozen=True, slots=True)
class Page:
    """A page by name, with its tokens."""

    name: str  # 64 hex digits
    token_bytes: bytes  # i32 ids, little-endian; at most 256

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return len(self.token_bytes) // _TOKEN_BYTES


class PageSource(Protocol):
    """A page of a sequence in memory, which must not change until `release`."""

    @property
    def held(self) -> Sequence[bool]:
        """Which groups of layers still have this page."""
        ...

    def parts(self) -> Sequence[memoryview | None]:
        """The bytes of each group; called only if one of them is not on the disk yet."""
        ...

    def release(self) -> None:
        """The page is not needed any more, written or not; may be called again."""
        ...


def pages_of(
    key: StateKey, token_bytes: bytes, images: Sequence[SavedImage] = ()
) -> tuple[Page, ...]:
    """The pages of a sequence of i32 token ids; the last one may have fewer than 256.

    Negative ids count the rows of the `images` from -1 down, in the order in which these appear.
    """
    pages: list[Page] = []
    parent, step = key.root, PAGE_TOKENS * _TOKEN_BYTES
    ends, digests = [*accumulate(one.count for one in images)], [one.digest for one in images]
    for at in range(0, len(token_bytes), step):
        ids = token_bytes[at : at + step]
        parent = hashlib.sha256(parent + ids).digest()
        if images and (rows := [-1 - one for one in array("i", ids) if one < 0]):
            shown = sorted({bisect_right(ends, row) for row in rows})
            # With a byte more than multiples of four: the hash of no text without images.
            parent = hashlib.sha256(b"".join((parent, *(digests[n] for n in shown), b"i"))).digest()
        pages.append(Page(parent.hex(), ids))
    return tuple(pages)


def file_name(name: str, group: int) -> str:
    """Name of the file with one group's part of a page."""
    return f"{name}.{group}{SUFFIX}"


def parse_name(file: str) -> tuple[str, int] | None:
    """Page name and group of a page file; None for another file."""
    name, _, rest = file.partition(".")
    group = rest.removesuffix(SUFFIX)
    is_hex = len(name) == 64 and not set(name) - set("0123456789abcdef")
    if not is_hex or group == rest or not (group.isascii() and group.isdecimal()):
        return None
    return name, int(group)


def file_size(page: Page, part_bytes: int) -> int:
    """Size in bytes of a page file."""
    return _HEADER.size + len(page.token_bytes) + part_bytes + _DIGEST_BYTES


def exists(folder: Path, page: Page, group: int, part_bytes: int) -> bool:
    """Whether the file is there with the right size; its contents are not verified."""
    try:
        size = (folder / file_name(page.name, group)).stat().st_size
    except OSError:
        return False
    return size == file_size(page, part_bytes)


def write(
    folder: Path,
    page: Page,
    group: int,
    part: memoryview,
    checkpoint: Checkpoint = no_checkpoint,
) -> int:
    """Write a page file atomically; returns its size in bytes.

    Raises OSError and what `checkpoint` raises.
    """
    path = folder / file_name(page.name, group)
    try:
        return disk_files.write(path, _pieces(page, group, part.cast("B"), checkpoint))
    except PermissionError:
        # Windows refuses to replace a file that is being read; it has the same contents.
        if exists(folder, page, group, part.nbytes):
            return 0
        raise


def read(
    folder: Path,
    page: Page,
    group: int,
    target: memoryview,
    checkpoint: Checkpoint = no_checkpoint,
) -> None:
    """Read a part into `target`, which has its size, and verify the whole file.

    Raises SnapshotError, Damaged if the file's contents are wrong (it is then deleted), and what
    `checkpoint` raises; `target` is then undefined.
    """
    path = folder / file_name(page.name, group)
    try:
        with path.open("rb", buffering=0) as file:
            status, damaged = os.fstat(file.fileno()), None
            try:
                _read(file, page, group, target.cast("B"), checkpoint)
            except Damaged as error:
                damaged = error
        if damaged is not None:
            _delete_same(path, status)  # not while it is open: Windows refuses that
            raise damaged
    except OSError as error:
        raise unreadable(error) from error


def _pieces(
    page: Page, group: int, part: memoryview, checkpoint: Checkpoint
) -> Iterator[bytes | memoryview]:
    """The contents of a page file."""
    digest = hashlib.sha256()
    header = _header(page, group, len(part)) + page.token_bytes
    for piece in (header, *(part[at : at + _CHUNK_BYTES] for at in _chunks(len(part)))):
        checkpoint()
        digest.update(piece)
        yield piece
    checkpoint()
    yield digest.digest()


def _chunks(size: int) -> range:
    return range(0, size, _CHUNK_BYTES)


def _header(page: Page, group: int, part_bytes: int) -> bytes:
    return _HEADER.pack(
        _MAGIC, _VERSION, group, bytes.fromhex(page.name), page.tokens, 0, part_bytes
    )


def _read(file: FileIO, page: Page, group: int, target: memoryview, checkpoint: Checkpoint) -> None:
    size, expected = os.fstat(file.fileno()).st_size, file_size(page, len(target))
    if size != expected:
        short = f"The saved session is cut short: {size:,} bytes of {expected:,}."
        raise Damaged(short) if size < expected else Damaged()
    header = _header(page, group, len(target)) + page.token_bytes
    found = bytearray(len(header))
    _fill(file, memoryview(found))
    if found != header:
        raise Damaged
    digest = hashlib.sha256(header)
    for at in _chunks(len(target)):
        checkpoint()
        chunk = target[at : at + _CHUNK_BYTES]
        _fill(file, chunk)
        digest.update(chunk)
    wanted = bytearray(_DIGEST_BYTES)
    _fill(file, memoryview(wanted))
    if wanted != digest.digest():
        raise Damaged


def _fill(file: FileIO, view: memoryview) -> None:
    """Read as many bytes as `view` has."""
    while view:
        read = file.readinto(view)
        if not read:
            raise Damaged
        view = view[read:]


def _delete_same(path: Path, status: os.stat_result) -> None:
    """Delete a damaged file, unless another process has replaced it by a good one."""
    with suppress(OSError):
        if os.path.samestat(path.stat(), status):
            disk_files.delete(path)
