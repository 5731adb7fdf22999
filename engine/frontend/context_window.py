"""Context policy: which turns of a conversation that outgrows the context the model still reads.

The choice depends on the lengths of the turns alone. It replays the conversation, and each time a
question would not fit it drops the oldest turns down to half the context. So the first kept turn
stays the same for many questions, their prompts share a cached prefix, and a restart, a snapshot
or another branch with the same turns gives the same choice without anything being stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from engine.messages import Role, Turn

_ANSWER_SHARE, _ANSWER_TOKENS = 4, 1024  # room kept for an answer: a share of the context, at most


def answer_room(context: int) -> int:
    """Tokens of the context kept free for an answer."""
    return min(context // _ANSWER_SHARE, _ANSWER_TOKENS)


def fits(tokens: int, context: int) -> bool:
    """Whether a whole prompt leaves room for an answer."""
    return tokens + answer_room(context) <= context


def dropped_turns(turns: Sequence[Turn], lengths: Sequence[int], context: int) -> int:
    """How many of the oldest turns after the instructions to leave out.

    `lengths` are the tokens of each turn with its markup. What is kept begins with a user's turn,
    and always has the last one of these.
    """
    head = instructions(turns)
    ends = [0, *accumulate(lengths)]  # ends[i]: tokens of the turns before i
    starts = [at for at in range(head, len(turns)) if turns[at].role is Role.USER]
    prompts = starts if turns and turns[-1].role is Role.USER else [*starts, len(turns) - 1]
    first = head

    def used(start: int, last: int) -> int:
        return ends[head] + ends[last + 1] - ends[start]

    for last in prompts:
        if fits(used(first, last), context):
            continue
        later = [start for start in starts if first < start <= last]
        if later:
            small = (start for start in later if used(start, last) <= context // 2)
            first = next(small, later[-1])
    return first - head


def next_start(turns: Sequence[Turn], dropped: int) -> int | None:
    """The next larger number of dropped turns; None when only the last question is left."""
    head = instructions(turns)
    later = range(head + dropped + 1, len(turns))
    found = next((at for at in later if turns[at].role is Role.USER), None)
    return None if found is None else found - head


def without(turns: Sequence[Turn], dropped: int) -> tuple[Turn, ...]:
    """The turns without the first `dropped` ones after the instructions."""
    head = instructions(turns)
    return (*turns[:head], *turns[head + dropped :])


def instructions(turns: Sequence[Turn]) -> int:
    """Number of system turns at the beginning."""
    return next((at for at, turn in enumerate(turns) if turn.role is not Role.SYSTEM), len(turns))
