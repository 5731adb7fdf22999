"""Text that a client keeps for the server and gives back unread; packed, not encrypted."""

from __future__ import annotations

import base64
import binascii
import zlib

_MARK = "tkn1."  # names the packing, so that what another server made is told apart
_MOST_BYTES = 64 << 20  # of an unpacked text: the most that a body may have


def pack(text: str) -> str:
    """The text as one word of ASCII letters, digits, "-", "_", "=" and "."."""
    return _MARK + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def unpack(word: str) -> str | None:
    """The text of a word from `pack`; None for any other."""
    if not word.startswith(_MARK):
        return None
    try:
        data = base64.urlsafe_b64decode(word.removeprefix(_MARK))
        inflate = zlib.decompressobj()
        text = inflate.decompress(data, _MOST_BYTES)
        return text.decode() if inflate.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None
