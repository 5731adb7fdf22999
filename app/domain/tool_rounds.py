"""Rounds of tool calls in an answer: calls, their results, and what the model writes from these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.domain.parts import (
    CallEnd,
    Part,
    Parts,
    ToolCallPart,
    ToolResultPart,
    without_error,
)

_NO_RESULT = "There is no result: the call was interrupted."
_STOPPED = CallEnd.STOPPED.value


def open_calls(parts: Iterable[Part]) -> tuple[ToolCallPart, ...]:
    """The calls of an answer that have no result, which it waits for."""
    parts = tuple(parts)
    done = {part.call for part in parts if isinstance(part, ToolResultPart)}
    calls = (part for part in parts if isinstance(part, ToolCallPart))
    return tuple(part for part in calls if part.call and part.call not in done)


def without_open_calls(parts: Iterable[Part]) -> Parts:
    """The parts without the calls that have no result."""
    parts = tuple(parts)
    left_out = open_calls(parts)
    return tuple(part for part in parts if part not in left_out)


def parts_before(parts: Parts, call: str) -> Parts:
    """The parts before the round of a call."""
    parts = without_error(parts)
    ids = [part.call if isinstance(part, ToolCallPart) else None for part in parts]
    at = ids.index(call) if call in ids else len(parts)
    ends = [n for n in range(at) if isinstance(parts[n], ToolResultPart)]
    begin = ends[-1] + 1 if ends else 0
    first = next((n for n in range(begin, at) if ids[n] is not None), at)
    return parts[:first]


def arranged(parts: Iterable[Part]) -> Parts:
    """The parts as models read them: behind the calls of a round its results, in their order.

    Every call has an id that its result repeats, and a result: imported chats have neither always.
    A result without a call has no id.
    """
    made: list[Part] = []
    calls: list[tuple[ToolCallPart, str]] = []  # of the round: each with its id as it is given
    results: list[ToolResultPart] = []

    def end_round() -> None:
        for call, id in calls:
            found = next((one for one in results if answers(one, call)), None)
            if found is None:
                made.append(ToolResultPart(call.name, _NO_RESULT, id, True, _STOPPED, ours=True))
            else:
                results.remove(found)
                made.append(replace(found, name=call.name, call=id))
        made.extend(replace(one, call="") for one in results)
        calls.clear()
        results.clear()

    count = 0
    for part in parts:
        if isinstance(part, ToolResultPart):
            results.append(part)
            continue
        if results:
            end_round()
        if isinstance(part, ToolCallPart):
            id = part.call or f"call_{count}"
            count += 1
            calls.append((part, id))
            part = replace(part, call=id)
        made.append(part)
    end_round()
    return tuple(made)


def answers(result: ToolResultPart, call: ToolCallPart) -> bool:
    """Whether a result is that of a call; in imported chats some have no name."""
    return result.call == call.call and (not result.name or result.name == call.name)
