"""Turns of a conversation as clients send them, made such that every chat template takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from engine.messages import Part, Role, TextPart, Turn

# Lines of agents that change with every request and say nothing to the model. They stand before
# everything else, so nothing of the conversation's cached prefix could be used.
_CHANGING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n*", re.MULTILINE)
# The time of day after the year in a line that says what day it is now: the day stays.
_CLOCK = re.compile(
    r"^(?P<day>[^\n]{0,20}\b(?:current|now|today|local)\b[^\n]{0,80}?\b\d{4}\b[^\n]{0,20}?)"
    r"(?:T|,? (?:at )?)\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp]\.?[Mm]\b\.?)?"
    r"(?:Z\b| ?UTC\b| ?GMT\b)?(?: ?[+-]\d{2}:?\d{2})?",
    re.MULTILINE | re.IGNORECASE,
)


def prepared(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Turns for the engine: one system turn, the first, whose text does not change by itself.

    Instructions in the middle of a conversation become the user's: most templates refuse them there.
    Consecutive turns of the user are one.
    """
    made: list[Turn] = []
    for turn in turns:
        if turn.role is Role.SYSTEM:
            is_first = all(one.role is Role.SYSTEM for one in made)
            turn = Turn(Role.SYSTEM if is_first else Role.USER, stable(turn.text))
            if not turn.content:
                continue
        if made and made[-1].role is turn.role and turn.role in (Role.SYSTEM, Role.USER):
            made[-1] = replace(turn, content=_joined(made[-1].content, turn.content))
        else:
            made.append(turn)
    return tuple(made)


def stable(text: str) -> str:
    """Instructions without what an agent changes in them from request to request."""
    return _CLOCK.sub(r"\g<day>", _CHANGING.sub("", text))


def _joined(
    first: str | tuple[Part, ...], second: str | tuple[Part, ...]
) -> str | tuple[Part, ...]:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return (*_parts(first), TextPart("\n\n"), *_parts(second))


def _parts(content: str | tuple[Part, ...]) -> tuple[Part, ...]:
    return (TextPart(content),) if isinstance(content, str) else content
