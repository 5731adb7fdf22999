"""Which token ids a prompt is read as, when a session holds most of its text already.

The ids a model chose for an answer are often not those its text is cut into, so a next turn whose
prompt was tokenized afresh would have to be read again from inside the last answer on. The rule
that avoids it: both sequences of ids spell bytes; as long as they spell the same ones, a place
where a token ends in both is a place to change over from the held ids to the fresh ones. Nothing
is tokenized from such a place, so no begin token, no leading space and no word boundary can come
in between; what is kept and what follows spell exactly the text of the prompt. Control tokens, and
tokens that spell nothing, match only themselves, never a text that looks like them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.tokenizer.tokenizer import Tokenizer


def reuse_cached_ids(tokenizer: Tokenizer, fresh: Sequence[int], held: Sequence[int]) -> list[int]:
    """The ids to read for a prompt that is tokenized as `fresh`: as much of `held` as agrees first."""
    from_held, from_fresh = shared_prefix(tokenizer, fresh, held)
    return [*held[:from_held], *fresh[from_fresh:]]


def shared_prefix(
    tokenizer: Tokenizer, fresh: Sequence[int], held: Sequence[int]
) -> tuple[int, int]:
    """How many tokens of `held`, and how many of `fresh`, spell the longest start they share."""
    pairs = zip(held, fresh, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(held), len(fresh)))
    agreed = (at, at)
    while (further := _next_place(tokenizer, fresh, held, agreed)) is not None:
        agreed = further
    return agreed


def _next_place(
    tokenizer: Tokenizer, fresh: Sequence[int], held: Sequence[int], place: tuple[int, int]
) -> tuple[int, int] | None:
    """The next place after `place` where a token ends in both, if they agree up to there."""
    in_held, in_fresh = place
    if in_held == len(held) or in_fresh == len(fresh):
        return None
    if held[in_held] == fresh[in_fresh]:
        return in_held + 1, in_fresh + 1
    ahead, held_leads = b"", True  # what one side has spelled beyond the other
    while ahead or place == (in_held, in_fresh):
        ids, at = (fresh, in_fresh) if ahead and held_leads else (held, in_held)
        if at == len(ids) or not (piece := _spelled(tokenizer, ids[at])):
            return None
        in_held, in_fresh = in_held + (ids is held), in_fresh + (ids is fresh)
        if not ahead:
            ahead, held_leads = piece, True
        elif ahead.startswith(piece):
            ahead = ahead[len(piece) :]
        elif piece.startswith(ahead):
            ahead, held_leads = piece[len(ahead) :], not held_leads
        else:
            return None
    return in_held, in_fresh


def _spelled(tokenizer: Tokenizer, token: int) -> bytes:
    """The bytes a token spells in a text; none for one that stands for itself alone."""
    return b"" if tokenizer.is_control(token) else tokenizer.piece(token)
