"""SentencePiece BPE encoder: merges the pair with the best score, the leftmost among equals.

The `tokenizers` library ranks merges, so it cannot express ties broken by position, and gemma has
6,400 tokens of equal score. Hence this implementation with a priority queue. Merges do not cross
word boundaries, so words are encoded separately and cached: time is linear in the text length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

SPACE = "\u2581"  # how a space is written in the vocabulary
_CACHED_WORDS = 50_000
_CACHED_LENGTH = 64  # characters; longer words are rarely repeated


class SentencePieceEncoder:
    """Text to token ids by scores, with byte fallback for unknown characters."""

    def __init__(
        self, ids: Mapping[str, int], scores: Sequence[float], unknown: int | None
    ) -> None:
        """`ids`: by token text; `scores`: by id; `unknown` replaces bytes without a token."""
        self._ids = ids
        self._scores = scores
        self._unknown = unknown
        self._words = _word_pattern(ids)
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` with ordinary spaces; no space is prepended."""
        ids: list[int] = []
        cache = self._cache
        for word in self._words.findall(text.replace(" ", SPACE)):
            found = cache.get(word)
            if found is None:
                found = self._merge(word)
                if len(word) <= _CACHED_LENGTH:
                    if len(cache) >= _CACHED_WORDS:
                        cache.clear()
                    cache[word] = found
            ids += found
        return ids

    def _merge(self, word: str) -> list[int]:
        parts = list(word)  # a part merged into its left neighbour becomes ""
        before = list(range(-1, len(parts) - 1))
        after = [*range(1, len(parts)), -1]
        ids, scores = self._ids, self._scores
        queue: list[tuple[float, int, int, int]] = []  # -score, left, right, length joined
        fresh = [(left, left + 1) for left in range(len(parts) - 1)]
        while True:
            for left, right in fresh:
                if left >= 0 and right >= 0:
                    joined = parts[left] + parts[right]
                    token = ids.get(joined)
                    if token is not None:
                        heappush(queue, (-scores[token], left, right, len(joined)))
            if not queue:
                return self._ids_of_parts(parts)
            _, left, right, length = heappop(queue)
            fresh = []
            # An entry is stale if either part was merged since it was queued.
            if parts[left] and parts[right] and len(parts[left]) + len(parts[right]) == length:
                parts[left] += parts[right]
                parts[right] = ""
                after[left] = after[right]
                if after[right] >= 0:
                    before[after[right]] = left
                fresh = [(before[left], left), (left, after[left])]

    def _ids_of_parts(self, parts: Sequence[str]) -> list[int]:
        found: list[int] = []
        for part in parts:
            if not part:
                continue
            token = self._ids.get(part)
            if token is not None:
                found.append(token)
            else:
                found += self._byte_ids(part)
        return found

    def _byte_ids(self, part: str) -> list[int]:
        found: list[int] = []
        for byte in part.encode("utf-8"):
            token = self._ids.get(f"<0x{byte:02X}>", self._unknown)
            if token is not None:
                found.append(token)
        return found


def _word_pattern(ids: Mapping[str, int]) -> re.Pattern[str]:
    """A pattern for words, the units of merging: a run of spaces and the text up to the next.

    Some vocabularies have tokens with an inner space (`>▁</`): a space after a character that
    precedes one there does not start a word.
    """
    inner_space_after = "".join(
        text[at - 1]
        for text in ids
        if SPACE in text.lstrip(SPACE)
        for at in range(1, len(text))
        if text[at] == SPACE and text[at - 1] != SPACE
    )
    inner = f"[^{SPACE}]+"
    if inner_space_after:
        inner = f"(?:{inner}|(?<=[{re.escape(inner_space_after)}]){SPACE}+)+"
    return re.compile(f"{SPACE}*{inner}|{SPACE}+")
