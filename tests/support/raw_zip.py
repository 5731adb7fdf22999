"""A writer of zip files that may lie: about sizes, names, offsets and counts."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Raw:
    """An entry as it is written; None: what is true."""

    name: str | bytes
    content: bytes = b""
    packed: bytes | None = None  # deflated content
    size: int | None = None  # unpacked, as the headers say
    packed_size: int | None = None
    crc: int | None = None
    flags: int = 0x800
    method: int = 8
    at: int | None = None  # offset of its local header, as the directory says
    extra: bytes = b""
    hidden: bool = False  # not in the directory


def raw_zip(
    entries: Iterable[Raw], *, count: int | None = None, comment: bytes = b"", end: bytes = b""
) -> bytes:
    """The bytes of a zip file; `count` entries, as its end says."""
    made, directory, written = bytearray(), bytearray(), 0
    for entry in entries:
        packed = deflated(entry.content) if entry.packed is None else entry.packed
        if entry.method == 0 and entry.packed is None:
            packed = entry.content
        name = entry.name.encode() if isinstance(entry.name, str) else entry.name
        size = len(entry.content) if entry.size is None else entry.size
        packed_size = len(packed) if entry.packed_size is None else entry.packed_size
        crc = zlib.crc32(entry.content) if entry.crc is None else entry.crc
        facts = struct.pack(
            "<HHHHIIIHH", entry.flags, entry.method, 0, 0x5821, crc, packed_size, size,
            len(name), len(entry.extra),
        )  # fmt: skip
        at = len(made) if entry.at is None else entry.at
        made += b"PK\x03\x04" + struct.pack("<H", 20) + facts + name + entry.extra + packed
        if not entry.hidden:
            directory += (
                b"PK\x01\x02" + struct.pack("<HH", 20, 20) + facts
                + struct.pack("<HHHII", 0, 0, 0, 0, at) + name + entry.extra
            )  # fmt: skip
            written += 1
    count = written if count is None else count
    tail = struct.pack(
        "<HHHHIIH", 0, 0, count & 0xFFFF, count & 0xFFFF, len(directory), len(made), len(comment)
    )
    return bytes(made + directory) + b"PK\x05\x06" + tail + comment + end


def deflated(content: bytes) -> bytes:
    """Raw deflate data."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def bomb(block: bytes, times: int, before: bytes = b"", after: bytes = b"") -> Raw:
    """An entry without a name whose content is `block` many times, packed once."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(before) + packer.flush(zlib.Z_FULL_FLUSH)
    packed += (packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)) * times
    packed += packer.compress(after) + packer.flush()
    size = len(before) + len(block) * times + len(after)
    crc = zlib.crc32(before)
    for _ in range(times):
        crc = zlib.crc32(block, crc)
    return Raw("", packed=packed, size=size, crc=zlib.crc32(after, crc))
