"""Types of picture files by their first bytes: media types, and endings of their names."""

from __future__ import annotations

ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/tiff": ".tiff",
    "image/jp2": ".jp2",
    "image/x-icon": ".ico",
    "image/qoi": ".qoi",
}
SHOWN_ANYWHERE = ("image/png", "image/jpeg", "image/gif", "image/webp")  # in every browser
BEGINNING = 12  # bytes that tell the type
_BEGINNINGS = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\0\x0cjP  ", "image/jp2"),
    (b"\0\0\1\0", "image/x-icon"),
    (b"qoif", "image/qoi"),
)


def media_type(content: bytes) -> str:
    """The media type of a picture's file by its first `BEGINNING` bytes; "" if it is not known."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    return next((kind for magic, kind in _BEGINNINGS if content.startswith(magic)), "")
