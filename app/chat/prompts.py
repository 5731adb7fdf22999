"""What the model is given of a conversation."""

from __future__ import annotations

from collections.abc import Sequence

from app.store.store import Message
from engine import Role, Turn


def turns_of(messages: Sequence[Message], system: str) -> tuple[Turn, ...]:
    """What the model is given for a branch: no empty turns, and roles that take turns.

    An answer that failed before its first word leaves two own messages in a row; many templates
    refuse that, so they become one.
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
