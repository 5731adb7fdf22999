"""Banned texts: takes tokens of an answer back when they complete a text that it must not contain.

The answer goes back to the token in which the text began, and another one is drawn there. Tokens
that may be the beginning of a banned text are held. What was shown is never taken back: after going
back, such a text may have its beginning there; then the first token after it is replaced.
Texts are compared as UTF-8, and only with what is generated, not with the prompt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from engine.errors import RequestError

_MOST_EXCLUDED = 32  # tokens at one position
_MOST_IN_VAIN = 500  # times that tokens are taken back without one that stays


@dataclass(frozen=True, slots=True)
class _Held:
    """A token that may be part of a banned text."""

    token: int
    piece: bytes
    mu: float  # of mirostat, before the token was drawn


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The last tokens of an answer that must be removed from it."""

    tokens: int
    mu: float  # of mirostat, before the first of them was drawn


class BannedTexts:
    """The texts that one answer must not contain, and its last tokens."""

    def __init__(self, texts: Sequence[str], piece: Callable[[int], bytes]) -> None:
        """`piece` returns the bytes of a token; empty for tokens that are not shown."""
        self._texts = sorted({text.encode("utf-8", "replace") for text in texts if text})
        self._piece = piece
        self._held: list[_Held] = []
        self._settled: list[int] = []
        self._shown = b""  # the end of what the settled tokens spell
        self._longest = max(map(len, self._texts), default=0)
        self._count = 0  # tokens of the answer
        self._excluded: dict[int, set[int]] = {}  # by that number: tokens taken back there
        self._in_vain = 0

    @property
    def excluded(self) -> Collection[int]:
        """Tokens that must not be drawn next: with them banned texts began here."""
        return self._excluded.get(self._count, ())

    def push(self, token: int, mu: float) -> TakenBack | None:
        """Add a token that was drawn at this `mu`; the result if it completes a banned text.

        Raises RequestError if too many were taken back.
        """
        self._held.append(_Held(token, self._piece(token), mu))
        self._count += 1
        joined = self._shown + b"".join(held.piece for held in self._held)
        start = max((joined.rfind(text) for text in self._texts), default=-1)
        if start >= 0:
            return self._take_back(self._token_at(start))
        self._settle(self._token_at(len(joined) - self._open_length(joined)))
        return None

    def settled(self) -> list[int]:
        """The tokens since the last call that cannot be taken back any more."""
        settled, self._settled = self._settled, []
        return settled

    def flush(self) -> list[int]:
        """All tokens that are still held, at the end of the answer."""
        self._settle(len(self._held))
        return self.settled()

    def _take_back(self, index: int) -> TakenBack:
        """Go back to before the held token of this index, which began a banned text."""
        first, count = self._held[index], len(self._held) - index
        del self._held[index:]
        self._count -= count
        self._in_vain += 1
        self._excluded = {at: ids for at, ids in self._excluded.items() if at <= self._count}
        excluded = self._excluded.setdefault(self._count, set())
        excluded.add(first.token)
        if len(excluded) >= _MOST_EXCLUDED or self._in_vain >= _MOST_IN_VAIN:
            raise RequestError(
                "The answer cannot go on without one of the banned texts.",
                "Ban fewer texts, or choose longer ones.",
            )
        return TakenBack(count, first.mu)

    def _settle(self, count: int) -> None:
        """Release the first held tokens."""
        if not count:
            return
        self._settled += [held.token for held in self._held[:count]]
        shown = self._shown + b"".join(held.piece for held in self._held[:count])
        self._shown = shown[max(len(shown) - self._longest, 0) :]
        del self._held[:count]
        self._in_vain = 0
        first = self._count - len(self._held)
        self._excluded = {at: ids for at, ids in self._excluded.items() if at >= first}

    def _token_at(self, offset: int) -> int:
        """The index of the held token with the byte at this offset of what is compared.

        0 for one that was shown, their number at the end.
        """
        end = len(self._shown)
        for index, held in enumerate(self._held):
            end += len(held.piece)
            if offset < end:
                return index
        return len(self._held)

    def _open_length(self, joined: bytes) -> int:
        """Length of the longest suffix that is the beginning of a banned text."""
        for start in range(len(joined)):
            suffix = joined[start:]
            at = bisect_left(self._texts, suffix)
            if at < len(self._texts) and self._texts[at].startswith(suffix):
                return len(suffix)
        return 0
