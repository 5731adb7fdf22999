"""Chat messages as prompt turns for the model.

A turn is text, so this is also where each kind of part becomes text: thoughts with their tags as
the model wrote them, attached texts between blank lines, and results of tools as a turn of the user
in the notation that most models with tools were trained on. Images and errors are not in a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.domain.message import Message
from app.domain.parts import Part, ToolResultPart, prompt_text
from engine import Role, Turn

_Piece = tuple[int, Turn]  # the message, and the text of some of its parts


def turns_of(messages: Sequence[Message], system: str) -> tuple[Turn, ...]:
    """Prompt turns of a branch: empty turns dropped, consecutive turns of one role merged.

    An answer that failed before its first token leaves two user messages in a row; many chat
    templates refuse that, so they are joined.
    """
    turns = [Turn(Role.SYSTEM, system)] if system.strip() else []
    for group in _groups(messages):
        text = "\n\n".join(turn.text for _, turn in group)
        turns.append(Turn(group[0][1].role, text))
    return tuple(turns)


def memory_start(messages: Sequence[Message], dropped_turns: int) -> int | None:
    """Id of the first message that the model reads; None if it reads all of them.

    `dropped_turns` is the engine's count of the turns after the instructions.
    """
    groups = _groups(messages)
    return groups[dropped_turns][0][0] if 0 < dropped_turns < len(groups) else None


def _groups(messages: Sequence[Message]) -> list[list[_Piece]]:
    """The pieces of the messages with text, those of one turn together."""
    groups: list[list[_Piece]] = []
    for message in messages:
        for turn in _turns(message):
            if not turn.text.strip():
                continue
            if groups and groups[-1][0][1].role is turn.role:
                groups[-1].append((message.id, turn))
            else:
                groups.append([(message.id, turn)])
    return groups


def _turns(message: Message) -> Iterator[Turn]:
    """The parts of a message as turns: results of tools are read by the model, not written."""
    parts: list[Part] = []
    results: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            if parts:
                yield Turn(message.role, prompt_text(parts))
                parts.clear()
            results.append(f"<tool_response>\n{part.text}\n</tool_response>")
        else:
            if results:
                yield Turn(Role.USER, "\n".join(results))
                results.clear()
            parts.append(part)
    if results:
        yield Turn(Role.USER, "\n".join(results))
    yield Turn(message.role, prompt_text(parts))
