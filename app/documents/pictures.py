"""Pictures among attached files: whether a file is one, its size, and a thumbnail."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.documents.source import ExtractionError, ExtractionFault, Look
from engine import ChildPool

THUMBNAIL = 192  # pixels of its longer side, at most
_BEGINNINGS = (
    *(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*"),
    *(b"\0\0\1\0", b"qoif", b"\0\0\0\x0cjP  "),
)
_CONTAINERS = (b"avif", b"avis", b"heic", b"heix", b"mif1")  # brands, some refused with a sentence
_BITMAP_HEADERS = (12, 40, 52, 56, 64, 108, 124)  # bytes
_FAULTS = {
    "damaged": ExtractionFault.DAMAGED,
    "empty": ExtractionFault.DAMAGED,
    "large": ExtractionFault.TOO_LARGE,
}


@dataclass(frozen=True, slots=True)
class PictureLook:
    """What a picture looks like."""

    width: int  # pixels, as it is seen
    height: int
    thumbnail: bytes  # PNG


def is_picture(path: Path) -> bool:
    """Whether the first bytes of a file are those of a picture; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            first = file.read(18)
    except OSError:
        return False
    is_webp = first[:4] == b"RIFF" and first[8:12] == b"WEBP"
    is_container = first[4:8] == b"ftyp" and first[8:12] in _CONTAINERS
    is_bitmap = first[:2] == b"BM" and first[14:18] in map(_word, _BITMAP_HEADERS)
    return first.startswith(_BEGINNINGS) or is_webp or is_container or is_bitmap


def look_at(path: Path, children: ChildPool, cancelled: Callable[[], bool] | None) -> PictureLook:
    """The size and the thumbnail of a picture, by a child process.

    Raises ExtractionError and ChildError.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExtractionError(ExtractionFault.UNREADABLE, error.strerror or "") from error
    asked: dict[str, object] = {}
    for _ in range(3):  # its size; the thumbnail; once more, if the header states a wrong size
        size, pieces = _told(children.call("picture", asked, cancelled, content=content))
        width, height = _within(*size)
        if pieces and len(pieces[0]) == 3 * width * height:
            return PictureLook(*size, _png(width, height, pieces[0]))
        cut = {"sizes": [(width, height)], "grid": (1, 1)}
        asked = {"plan": {"size": size, "filter": "lanczos", "cuts": [cut]}}
    raise ExtractionError(ExtractionFault.DAMAGED)


def _told(pieces: list[bytes]) -> tuple[tuple[int, int], list[bytes]]:
    """The size that a child process tells, and what follows. Raises ExtractionError."""
    try:
        answer = json.loads(pieces[0])
        size = int(answer["width"]), int(answer["height"])
        refusal = answer.get("refusal")
    except (ValueError, TypeError, LookupError, AttributeError):
        raise ExtractionError(ExtractionFault.CRASHED) from None
    if refusal is not None or min(size) < 1:
        fault = _FAULTS.get(refusal or "damaged", ExtractionFault.UNKNOWN)
        raise ExtractionError(fault, Look.UNREAD_PICTURE)
    return size, pieces[1:]


def _within(width: int, height: int) -> tuple[int, int]:
    """The size of a thumbnail."""
    share = min(1.0, THUMBNAIL / max(width, height))
    return max(1, round(width * share)), max(1, round(height * share))


def _png(width: int, height: int, pixels: bytes) -> bytes:
    """Pixels u8 [height, width, 3] as a PNG file."""
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


def _word(number: int) -> bytes:
    return struct.pack("<I", number)
