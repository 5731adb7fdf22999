"""Part sizes: how long the parts of a long document are, and what is made of each, in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.domain.documents import Reads

MARKUP = 96  # tokens of the template, and of the borders of a part
_MOST_PART = 6144  # tokens of a part: of a longer one a summary says too little
_FEWEST_PART = 96  # in a shorter one there is no sense
_MOST_REWRITTEN = 1024  # tokens of a part that is rewritten: of a longer one something is left out
_MOST_RESULT = 1024  # tokens of what is made of a part,
_RESULT_SHARE = 4  # at most one part of so many of the context
USUAL_CONTEXT = 4096  # of an engine elsewhere that does not tell
TASK = 80  # tokens of what is asked of each part, beside what the user asks


@dataclass(frozen=True, slots=True)
class PartSizes:
    """The most tokens of a part."""

    text: int
    result: int  # what is made of it


def part_sizes(context: int, fixed: int, reads: Reads) -> PartSizes | None:
    """Sizes of parts for a context, of which so many tokens are the same in all requests; None:
    there is no room for a part.
    """
    free = context - fixed - MARKUP
    result = min(context // _RESULT_SHARE, _MOST_RESULT)
    text = free - result
    if reads is Reads.REWRITE:  # other languages may need twice as many
        text = min(free // 3, _MOST_REWRITTEN)
        result = free - text
    if text < _FEWEST_PART:
        return None
    if reads is Reads.REWRITE:
        return PartSizes(text, result)
    return PartSizes(min(text, _MOST_PART), min(result, max(text // 3, 1)))


def rewritten_most(tokens: int) -> int:
    """The most tokens of a rewritten part, if its prompt has so many."""
    return 3 * tokens


@dataclass(frozen=True, slots=True)
class LongCost:
    """What a long document takes, about."""

    parts: int
    read: int = 0  # tokens of all prompts
    written: int = 0  # tokens, at most


def long_cost(tokens: int, parts: int, sizes: PartSizes, fixed: int, reads: Reads) -> LongCost:
    """The cost of files of so many tokens in so many parts, if as many tokens as `fixed` are the
    same in all requests.
    """
    read = tokens + parts * (fixed + MARKUP)
    if reads is Reads.REWRITE:
        return LongCost(parts, read, tokens)
    if parts <= 1:
        return LongCost(parts, read, sizes.result)
    written, results = 0, parts
    while True:  # results of a level, which the next one is made of
        written += results * sizes.result
        read += results * sizes.result + fixed + MARKUP
        if results * sizes.result <= sizes.text:
            return LongCost(parts, read, written + sizes.result)
        results = math.ceil(results / max(sizes.text // sizes.result, 2))
