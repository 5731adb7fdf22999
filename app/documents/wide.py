"""Texts whose characters are of two or four bytes, or begin with a byte order mark."""

from __future__ import annotations

import codecs
from typing import NamedTuple
from unicodedata import category

_SAMPLE = 1 << 13  # bytes
_LEAST = 32  # bytes, of which something can be told without a mark
_MARKS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Wide(NamedTuple):
    """An encoding, and the bytes of the mark before the text."""

    encoding: str
    mark: int = 0


def wide_encoding(head: bytes) -> Wide | None:
    """The encoding that a byte order mark or zeros between letters show; None: neither does."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Wide(name, len(mark))
    sample = head[: min(_SAMPLE, len(head) // 4 * 4)]
    if b"\0" not in sample:
        return None
    zeros = [sample[at::4].count(0) / (len(sample) // 4) for at in range(4)]
    if zeros[2] > 0.9 and zeros[3] > 0.99 and zeros[0] < 0.1:
        return Wide("utf-32-le")
    if zeros[1] > 0.9 and zeros[0] > 0.99 and zeros[3] < 0.1:
        return Wide("utf-32-be")
    even, odd = (zeros[0], zeros[2]), (zeros[1], zeros[3])
    if min(odd) > 0.4 and max(even) < 0.05:
        return Wide("utf-16-le")
    if min(even) > 0.4 and max(odd) < 0.05:
        return Wide("utf-16-be")
    # Other scripts have few zeros: in spaces and line ends, and in a letter such as U+4E00.
    if len(sample) < _LEAST:
        return None
    fits = [(_blocks(sample, name), name) for name in ("utf-16-le", "utf-16-be")]
    count, name = min(fits)
    return Wide(name) if count <= max(8, len(sample) // 3) else None


def _blocks(sample: bytes, name: str) -> int:
    """Of how many blocks of 256 characters a text is, if nearly all of it is letters and marks."""
    text = sample.decode(name, "replace")
    if not any(each in text for each in " \n\u3002"):
        return len(sample)
    usual = sum(each in "\n\r\t" or category(each)[0] in "LMNPZ" for each in text)
    return len({ord(each) >> 8 for each in text}) if usual > 0.95 * len(text) else len(sample)
