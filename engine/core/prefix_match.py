"""Prefix matching by bytes: reuse cached token ids that spell the same text as a new prompt.

The ids a model generated for an answer often differ from the tokenizer's ids for the same text, so
matching ids alone would lose the cache from inside the last answer on. Both sequences spell bytes:
as long as these agree, a position where a token ends in both is one where the prompt can switch
from the cached ids to the fresh ones. No text is tokenized from such a position, so no begin token,
leading space or word boundary is inserted: kept and following ids spell exactly the prompt.
Control tokens, and tokens without text, match only themselves, never a text that looks like them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.state.prefix_tree import common_length


def reuse_cached_ids(
    tokenizer: Tokenizer, fresh: Sequence[int], texts: Iterable[Sequence[int]]
) -> list[int]:
    """The prompt tokenized as `fresh`, beginning with ids of the cached text that shares most."""
    best: list[int] = list(fresh)
    longest = 0
    for cached in texts:
        from_cached, from_fresh = shared_prefix(tokenizer, fresh, cached)
        if from_fresh > longest:
            longest = from_fresh
            best = [*cached[:from_cached], *fresh[from_fresh:]]
    return best


def shared_prefix(
    tokenizer: Tokenizer, fresh: Sequence[int], cached: Sequence[int]
) -> tuple[int, int]:
    """Numbers of tokens of `cached` and of `fresh` that spell their longest common prefix."""
    at = common_length(cached, fresh)
    shared = (at, at)
    while (further := _next_boundary(tokenizer, fresh, cached, shared)) is not None:
        shared = further
    return shared


def _next_boundary(
    tokenizer: Tokenizer, fresh: Sequence[int], cached: Sequence[int], start: tuple[int, int]
) -> tuple[int, int] | None:
    """The next token boundary of both after `start`; None if their bytes differ before it."""
    in_cached, in_fresh = start
    if in_cached == len(cached) or in_fresh == len(fresh):
        return None
    if cached[in_cached] == fresh[in_fresh]:
        return in_cached + 1, in_fresh + 1
    ahead, cached_leads = b"", True  # bytes that one sequence has spelled beyond the other
    while ahead or start == (in_cached, in_fresh):
        ids, at = (fresh, in_fresh) if ahead and cached_leads else (cached, in_cached)
        if at == len(ids) or not (piece := _text_bytes(tokenizer, ids[at])):
            return None
        in_cached, in_fresh = in_cached + (ids is cached), in_fresh + (ids is fresh)
        if not ahead:
            ahead, cached_leads = piece, True
        elif ahead.startswith(piece):
            ahead = ahead[len(piece) :]
        elif piece.startswith(ahead):
            ahead, cached_leads = piece[len(ahead) :], not cached_leads
        else:
            return None
    return in_cached, in_fresh


def _text_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """The bytes a token spells in a text; empty for a control token."""
    return b"" if tokenizer.is_control(token) else tokenizer.piece(token)
