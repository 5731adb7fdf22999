"""Turns of a conversation as clients send them, made such that every chat template takes them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from engine.messages import Part, Role, TextPart, Turn

# Lines of agents that change with every request and say nothing to the model. They stand before
# everything else, so nothing of the conversation's cached prefix could be used.
_CHANGING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n*", re.MULTILINE)
# The time of day in a line that says what day it is now: the day stays.
_CLOCK = re.compile(
    r"(?:T|,? (?:at )?)\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp]\.?[Mm]\b\.?)?"
    r"(?:Z\b| ?UTC\b| ?GMT\b)?(?: ?[+-]\d{2}:?\d{2})?",
    re.IGNORECASE,
)
# What is before it, from the beginning of the line: such a word, and then a year close to the time.
_NOW = re.compile(r"[^\n]{0,20}?\b(?:current|now|today|local)\b", re.IGNORECASE)
_YEAR = re.compile(r"\b\d{4}\b")
_MOST_BEFORE, _MOST_AFTER_YEAR = 125, 20  # characters


def prepared(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Turns for the engine: one system turn, the first, whose text does not change by itself.

    Instructions in the middle of a conversation become the user's: most templates refuse them there.
    Consecutive turns of the user are one.
    """
    read: list[Turn] = []
    for turn in turns:
        if turn.role is Role.SYSTEM:
            is_first = not read or read[-1].role is Role.SYSTEM
            turn = Turn(Role.SYSTEM if is_first else Role.USER, stable(turn.text))
            if not turn.content:
                continue
        read.append(turn)
    made: list[Turn] = []
    for role, group in itertools.groupby(read, lambda turn: turn.role):
        if role in (Role.SYSTEM, Role.USER):
            made.append(Turn(role, _joined([turn.content for turn in group])))
        else:
            made += group
    return tuple(made)


def stable(text: str) -> str:
    """Instructions without what an agent changes in them from request to request."""
    return _CLOCK.sub(_without_clock, _CHANGING.sub("", text))


def _without_clock(found: re.Match[str]) -> str:
    """What stays of a time of day: nothing in a line that says what day it is now."""
    text, at = found.string, found.start()
    begin = text.rfind("\n", max(at - _MOST_BEFORE - 1, 0), at) + 1
    before = text[begin:at] if begin or at <= _MOST_BEFORE else ""
    word = _NOW.match(before)
    years = [year.end() for year in _YEAR.finditer(before, word.end())] if word else []
    is_now = bool(years) and len(before) - years[-1] <= _MOST_AFTER_YEAR
    return "" if is_now and not _CLOCK.search(before) else found[0]


def _joined(contents: Sequence[str | tuple[Part, ...]]) -> str | tuple[Part, ...]:
    """The contents of turns as that of one."""
    contents = [one for one in contents if one]
    texts = [one for one in contents if isinstance(one, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    return joined_texts(
        [part for one in contents for part in ((TextPart(one),) if isinstance(one, str) else one)]
    )


def joined_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Parts of a turn with texts that follow each other as one, and none without text."""
    made: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart) and made and isinstance(made[-1], TextPart):
            made[-1] = TextPart("\n\n".join(filter(None, (made[-1].text, part.text))))
        elif not isinstance(part, TextPart) or part.text:
            made.append(part)
    return tuple(made)
