"""Text that a client keeps for the server and gives back unread; packed, not encrypted."""

from __future__ import annotations

import base64
import binascii

_MARK = "tkn1."  # names the packing, so that what another server made is told apart


def pack(text: str) -> str:
    """The text as one word of ASCII letters, digits, "-", "_", "=" and "."."""
    # Not compressed: a small body of a client could unpack to more than the memory holds.
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def unpack(word: str) -> str | None:
    """The text of a word from `pack`; None for any other."""
    if not word.startswith(_MARK):
        return None
    try:
        data = base64.b64decode(word.removeprefix(_MARK), altchars=b"-_", validate=True)
        return data.decode()
    except (binascii.Error, ValueError):
        return None
