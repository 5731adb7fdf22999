"""Vocabulary map: token ids of a target model to those of its draft model and back.

Models of one family share a vocabulary, up to unused tokens at its end. Others are mapped where
tokens have the same bytes; the remaining ones are spelled by shorter tokens for the draft model,
and it drafts only tokens that the target has.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engine.errors import RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer

_LEAST_COMMON = 0.5  # share of the draft model's tokens that the target must have


class VocabularyMap:
    """Translates texts between two vocabularies."""

    def __init__(self, target: Tokenizer, draft: Tokenizer) -> None:
        """Takes a second for 150,000 tokens. Raises RequestError for too different vocabularies."""
        ours = {_key(target, token): token for token in reversed(range(target.size))}
        theirs = {_key(draft, token): token for token in reversed(range(draft.size))}
        self.is_identity = all(theirs.get(key, token) == token for key, token in ours.items())
        self._ends = target.end_tokens
        common = [(ours[key], token) for key, token in theirs.items() if key in ours and key[0]]
        if len(common) < _LEAST_COMMON * len(theirs):
            raise RequestError(
                "The draft model's vocabulary is too different from this model's.",
                "Choose a draft model of the same family.",
            )
        self._size = target.size
        self._common = torch.tensor(
            common, dtype=torch.int64
        ).T  # [2, N]: the target's, the draft's
        self._to_draft: dict[int, tuple[int, ...]] = {}
        for (piece, is_control), token in ours.items():
            same = theirs.get((piece, is_control))
            if same is not None:
                self._to_draft[token] = (same,)
            elif not is_control:
                self._to_draft[token] = _spelled(piece, theirs)

    def to_draft(self, tokens: Iterable[int]) -> list[int]:
        """The draft model's tokens for a text; without control tokens that it does not have."""
        if self.is_identity:
            return list(tokens)
        return [one for token in tokens for one in self._to_draft.get(token, ())]

    def to_target_logits(self, logits: Tensor) -> Tensor:
        """The draft model's logits [V] for the target's tokens; -inf where it has no such token."""
        if self.is_identity:
            return logits[: self._size]
        ours, theirs = self._common[:, self._common[1] < len(logits)]
        row = torch.full((self._size,), -torch.inf)
        row[ours] = logits[theirs]
        return row

    def ends(self, token: int) -> bool:
        """Whether a token of the target ends an answer."""
        return token in self._ends


def _key(tokenizer: Tokenizer, token: int) -> tuple[bytes, bool]:
    return tokenizer.piece(token), tokenizer.is_control(token)


def _spelled(piece: bytes, tokens: dict[tuple[bytes, bool], int]) -> tuple[int, ...]:
    """The longest tokens from the left that spell `piece`; none for bytes without a token."""
    found: list[int] = []
    start = 0
    while start < len(piece):
        for end in range(len(piece), start, -1):
            token = tokens.get((piece[start:end], False))
            if token is not None:
                found.append(token)
                start = end
                break
        else:
            start += 1
    return tuple(found)
