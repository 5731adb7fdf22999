"""Replacements of characters before they are encoded, as SentencePiece compiles them into a table.

The table (`tokenizer.ggml.precompiled_charsmap`) is a trie over UTF-8 in a double array of 32-bit
units, then the replacements, each ended by a zero byte. The `tokenizers` library has a reader of its
own, but it drops marks behind some characters, and panics on damaged tables.

Source: https://github.com/s-yata/darts-clone/blob/master/include/darts.h
"""

from __future__ import annotations

import re
from array import array

from engine.errors import ModelFileError

_LONGEST = 16  # characters of a sequence that is looked for
_LABEL = 1 << 31 | 0xFF  # of a unit; a value has the highest bit
_WIDE_OFFSET = 1 << 9


class Replacements(dict[int, str]):
    """Replaces the longest known sequence at each position of a text.

    As a dictionary: what each single character becomes, found when it first occurs.
    """

    def __init__(self, table: bytes) -> None:
        """`table`: the compiled one; raises ModelFileError for one that is damaged."""
        super().__init__()
        size = int.from_bytes(table[:4], "little")
        if size % 4 or not 0 < size < len(table) - 4:
            raise _damaged()
        units = array("I", table[4 : 4 + size])
        assert units.itemsize == 4
        if array("H", b"\1\0")[0] != 1:
            units.byteswap()
        self._units = units
        self._texts = table[4 + size :]
        # Where a longer sequence may begin: no table has one of two ASCII characters.
        self._starts = re.compile(r"(?s).(?=[^\0-\x7f])")

    def __missing__(self, code: int) -> str:
        _, replacement = self._longest(chr(code))
        self[code] = replacement
        return replacement

    def replaced(self, text: str) -> str:
        """The text with its replacements; raises ModelFileError for a damaged table."""
        made: list[str] = []
        done = 0
        for found in self._starts.finditer(text):
            start = found.start()
            if start < done:
                continue
            length, replacement = self._longest(text[start : start + _LONGEST])
            if length > 1:
                made += text[done:start].translate(self), replacement
                done = start + length
        made.append(text[done:].translate(self))
        return "".join(made)

    def _longest(self, text: str) -> tuple[int, str]:
        """The longest sequence at the beginning of a text: its characters and what they become."""
        found, value = 0, -1
        units, stored = self._units, text.encode("utf-8")
        try:
            node = _offset(units[0])
            for number, byte in enumerate(stored, 1):
                node ^= byte
                unit = units[node]
                if unit & _LABEL != byte or not byte:
                    break
                node ^= _offset(unit)
                if unit >> 8 & 1:
                    found, value = number, units[node] & ~(1 << 31)
        except IndexError:
            raise _damaged() from None
        if not found:
            return 1, text[:1]
        end = self._texts.find(b"\0", value)
        try:
            if value >= len(self._texts) or end < 0:
                raise _damaged()
            return len(stored[:found].decode("utf-8")), self._texts[value:end].decode("utf-8")
        except UnicodeDecodeError:
            raise _damaged() from None


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & _WIDE_OFFSET) >> 6)


def _damaged() -> ModelFileError:
    return ModelFileError(
        "The table tokenizer.ggml.precompiled_charsmap is damaged.",
        "Download the file again, or choose another one.",
    )
