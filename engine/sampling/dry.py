"""DRY: a penalty for tokens that would continue a repetition of the text, by its length.

Source: the description by its author, p-e-w, "DRY: A modern repetition penalty that reliably
prevents looping" (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.messages import Sampling
from engine.sampling.candidates import Floats, Ints

_MAX_EXPONENT = math.log(np.finfo(np.float32).max)  # of e, in float32
_MOST_COMPARED = 1000  # tokens of a repetition; the penalty of a longer one does not grow
_MAX_PENALTY = 1e30  # logits stay finite

Piece = Callable[[int], bytes]


class Dry:
    """The penalty with its options; `apply` depends on the tokens alone."""

    def __init__(self, sampling: Sampling, piece: Piece | None) -> None:
        """`piece` returns the bytes of a token; without it nothing breaks a repetition."""
        self._sampling = sampling
        self._piece = piece
        texts = (text.encode("utf-8", "replace") for text in sampling.dry_breakers)
        self._breakers = [text for text in texts if text] if piece else []
        base = sampling.dry_base
        growing = int(_MAX_EXPONENT / math.log(base)) if base > 1 + 1e-6 else 0
        self._longest = sampling.dry_allowed_length + min(growing, _MOST_COMPARED)

    def apply(self, row: Floats, tokens: Sequence[int]) -> None:
        """Subtract the penalties from logits [V], in place; `tokens` are all before it.

        A repetition ends where an image begins.
        """
        sampling = self._sampling
        window = sampling.dry_window if sampling.dry_window >= 0 else len(tokens)
        text = np.array(tokens[max(len(tokens) - window, 0) :], dtype=np.int32)
        if len(text) <= sampling.dry_allowed_length:
            return
        lengths = _repeated(text, self._longest)
        longest = int(lengths.max(initial=0))
        if self._breakers and longest >= sampling.dry_allowed_length:
            lengths = np.minimum(lengths, self._unbroken(tokens, longest))
        counted = np.flatnonzero(lengths >= sampling.dry_allowed_length)
        if not len(counted):
            return
        counted = counted[text[counted + 1] < len(row)]
        ids, where = np.unique(text[counted + 1], return_inverse=True)
        found = np.zeros(len(ids), np.int64)
        np.maximum.at(found, where, lengths[counted])
        if self._breakers:
            penalized = np.array([not self._breaks(int(token)) for token in ids], np.bool_)
            ids, found = ids[penalized], found[penalized]
        powers = float(sampling.dry_base) ** (found - sampling.dry_allowed_length)
        row[ids] -= np.minimum(sampling.dry_multiplier * powers, _MAX_PENALTY).astype(np.float32)

    def _unbroken(self, tokens: Sequence[int], longest: int) -> int:
        """The number of tokens after the last breaker, up to `longest`."""
        assert self._piece is not None
        before = max(map(len, self._breakers))  # tokens in which a breaker may begin
        pieces = [self._piece(token) for token in tokens[-longest - before :]]
        joined = b"".join(pieces)
        ends = (joined.rfind(text) + len(text) for text in self._breakers if text in joined)
        end, at = max(ends, default=0), len(joined)
        for count, piece in enumerate(reversed(pieces[-longest:])):
            at -= len(piece)
            if at < end:
                return count
        return longest

    def _breaks(self, token: int) -> bool:
        """Whether the token alone ends a repetition: it is never penalized."""
        assert self._piece is not None
        piece = self._piece(token)
        return any(text in piece for text in self._breakers)


def _repeated(text: NDArray[np.int32], longest: int) -> Ints:
    """For each token of text [N] but the last: how many tokens up to it are also at the end.

    [N - 1] i64; at most `longest` tokens are compared.
    """
    count = len(text)
    lengths = np.zeros(count - 1, np.int64)
    alike = np.arange(count - 1)  # positions whose last `length` tokens are those at the end
    for length in range(1, longest + 1):
        alike = alike[alike >= length - 1]
        alike = alike[text[alike - length + 1] == text[count - length]]
        if not len(alike):
            break
        lengths[alike] = length
    return lengths
