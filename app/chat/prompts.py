"""Chat messages as prompt turns for the model."""

from __future__ import annotations

from collections.abc import Sequence

from app.store.store import Message
from engine import Role, Turn


def turns_of(messages: Sequence[Message], system: str) -> tuple[Turn, ...]:
    """Prompt turns of a branch: empty turns dropped, consecutive turns of one role merged.

    An answer that failed before its first token leaves two user messages in a row; many chat
    templates refuse that, so they are joined.
    """
    turns = [Turn(Role.SYSTEM, system)] if system.strip() else []
    for group in _groups(messages):
        turns.append(Turn(group[0].role, "\n\n".join(message.text for message in group)))
    return tuple(turns)


def memory_start(messages: Sequence[Message], dropped_turns: int) -> int | None:
    """Id of the first message that the model reads; None if it reads all of them.

    `dropped_turns` is the engine's count of the turns after the instructions.
    """
    groups = _groups(messages)
    return groups[dropped_turns][0].id if 0 < dropped_turns < len(groups) else None


def _groups(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages with text, those of one turn together."""
    groups: list[list[Message]] = []
    for message in messages:
        if not message.text.strip():
            continue
        if groups and groups[-1][0].role is message.role:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups
