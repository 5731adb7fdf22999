"""SentencePiece merging: the pair with the best score first, the leftmost among equals.

The merge rule of the `tokenizers` library ranks pairs, so it cannot say "equal, then leftmost", and
gemma alone has 6,400 tokens of one score. Hence the queue is written out here. Merges never cross a
word boundary, so words are merged one by one and remembered: text costs time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

SPACE = "\u2581"  # how a space is written in the vocabulary
_REMEMBERED_WORDS = 50_000
_REMEMBERED_CHARACTERS = 64  # longer words hardly come twice


class SentencePieceEncoder:
    """Text to ids by scores, with a fallback to the bytes of a character nobody knows."""

    def __init__(
        self, ids: Mapping[str, int], scores: Sequence[float], unknown: int | None
    ) -> None:
        """`ids` maps token texts to ids, `scores` is by id; `unknown` stands for lost bytes."""
        self._ids = ids
        self._scores = scores
        self._unknown = unknown
        self._words = _word_pattern(ids)
        self._remembered: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, in which spaces are still spaces; adds none before it."""
        ids: list[int] = []
        remembered = self._remembered
        for word in self._words.findall(text.replace(" ", SPACE)):
            found = remembered.get(word)
            if found is None:
                found = self._merge(word)
                if len(word) <= _REMEMBERED_CHARACTERS:
                    if len(remembered) >= _REMEMBERED_WORDS:
                        remembered.clear()
                    remembered[word] = found
            ids += found
        return ids

    def _merge(self, word: str) -> list[int]:
        parts = list(word)  # a part swallowed by its left neighbour becomes ""
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
            # A pair is stale when either side has grown or gone since it was offered.
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
    """Words that merges cannot cross: a run of spaces and what follows, up to the next.

    Some vocabularies hold tokens with a space inside (`>▁</`); a space after such a character
    starts no word.
    """
    holding = "".join(
        text[at - 1]
        for text in ids
        if SPACE in text.lstrip(SPACE)
        for at in range(1, len(text))
        if text[at] == SPACE and text[at - 1] != SPACE
    )
    inner = f"[^{SPACE}]+"
    if holding:
        inner = f"(?:{inner}|(?<=[{re.escape(holding)}]){SPACE}+)+"
    return re.compile(f"{SPACE}*{inner}|{SPACE}+")
