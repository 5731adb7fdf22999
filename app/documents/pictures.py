"""Attached pictures: their size, a thumbnail and larger copies, by a child process."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.documents.source import ExtractionError, ExtractionFault, Look
from engine import Cancelled, ChildFault, ChildPool, PictureRefused, Thumbnail, read_thumbnail

THUMBNAIL = 192  # pixels of its longer side, at most
_FAULTS = {
    "damaged": ExtractionFault.DAMAGED,
    "empty": ExtractionFault.DAMAGED,
    "large": ExtractionFault.TOO_LARGE,
    ChildFault.TIMEOUT: ExtractionFault.TOO_SLOW,
    ChildFault.MEMORY: ExtractionFault.MEMORY,
    ChildFault.OUTPUT: ExtractionFault.TOO_LARGE,
    ChildFault.CRASHED: ExtractionFault.CRASHED,
    ChildFault.NOT_STARTED: ExtractionFault.CRASHED,
}


@dataclass(frozen=True, slots=True)
class PictureLook:
    """What a picture looks like."""

    width: int  # pixels, as it is seen
    height: int
    thumbnail: bytes  # PNG


def look_at(path: Path, children: ChildPool, cancelled: Callable[[], bool] | None) -> PictureLook:
    """The size and the thumbnail of the picture in a file; raises ExtractionError."""
    found = copy_of(path, THUMBNAIL, children, cancelled)
    return PictureLook(*found.picture, _png(found))


def copy_of(
    path: Path, longest: int, children: ChildPool, cancelled: Callable[[], bool] | None
) -> Thumbnail:
    """A copy of the picture in a file with sides of `longest` pixels at most.

    Raises ExtractionError.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExtractionError(ExtractionFault.UNREADABLE, error.strerror or "") from error
    return copy_from(content, longest, children, cancelled)


def copy_from(
    content: bytes, longest: int, children: ChildPool, cancelled: Callable[[], bool] | None
) -> Thumbnail:
    """A copy of the picture in the bytes of a file; raises as `copy_of` does."""
    try:
        return read_thumbnail(children, content, longest, cancelled)
    except Cancelled:
        raise ExtractionError(ExtractionFault.CANCELLED) from None
    except PictureRefused as error:
        fault = _FAULTS.get(error.reason, ExtractionFault.UNKNOWN)
        raise ExtractionError(fault, Look.UNREAD_PICTURE) from None


def _png(thumbnail: Thumbnail) -> bytes:
    """A thumbnail as a PNG file."""
    (width, height), pixels = thumbnail.size, thumbnail.pixels
    lines = b"".join(b"\0" + pixels[at : at + 3 * width] for at in range(0, len(pixels), 3 * width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
