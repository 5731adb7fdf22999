"""Bytes of tokens to text that never splits a character.

A token of a byte-level vocabulary may end in the middle of a character: an emoji is often three
tokens. The stream keeps the unfinished bytes back, and gives U+FFFD for bytes no character begins.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable


class TextStream:
    """Text of tokens as they arrive: `push` one at a time, `flush` at the end."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        """`piece` gives the bytes of one token; empty for tokens that show nothing."""
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Add a token; the characters that are complete by now, possibly none."""
        return self._decoder.decode(self._piece(token))

    def flush(self) -> str:
        """End the stream: what is still held back, U+FFFD for an unfinished character."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
