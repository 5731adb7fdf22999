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
    for message in messages:
        if not message.text.strip():
            continue
        if turns and turns[-1].role is message.role:
            turns[-1] = Turn(message.role, f"{turns[-1].text}\n\n{message.text}")
        else:
            turns.append(Turn(message.role, message.text))
    return tuple(turns)
