"""Incremental detokenizer: token bytes to text, without splitting UTF-8 characters.

A token of a byte-level vocabulary may end in the middle of a character: an emoji is often three
tokens. Incomplete bytes are buffered; invalid bytes become U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable


class TextStream:
    """Incremental decoder of one reply: `push` each token, `flush` at the end."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        """`piece` returns the bytes of a token; empty for tokens that are not shown."""
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Add a token; returns the characters it completes, possibly none."""
        return self._decoder.decode(self._piece(token))

    def push_bytes(self, data: bytes) -> str:
        """Add bytes; returns the characters they complete."""
        return self._decoder.decode(data)

    def reset(self) -> None:
        """Forget an incomplete character."""
        self._decoder.reset()

    def flush(self) -> str:
        """End the stream; returns U+FFFD if a character is incomplete."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
