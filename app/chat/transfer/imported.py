"""What every reader yields: chats of another program as trees, and what could not be taken over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from app.domain.chat_settings import NO_SETTINGS, ChatSettings
from app.domain.chat_tree import ChatTree
from app.domain.message import Message
from app.domain.parts import Parts, TextPart
from app.domain.transfer import Dropped
from engine import Role


@dataclass(frozen=True, slots=True)
class ImportedChat:
    """One chat of a file; None for its tree: it could not be read."""

    tree: ChatTree | None
    dropped: Counter[Dropped] = field(default_factory=Counter[Dropped])


UNREADABLE = ImportedChat(None)


class Tree:
    """Tree builder: adds messages one by one; children of a skipped message go to its parent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._numbers: dict[str, int | None] = {}

    def parent(self, key: str | None) -> int | None:
        """The number of the message that stands for a key."""
        return None if key is None else self._numbers.get(key)

    def add(self, key: str, parent: str | None, make: Callable[[int, int | None], Message]) -> None:
        """Add a message, which `make` gets its number and its parent's for."""
        number = len(self.messages) + 1
        self.messages.append(make(number, self.parent(parent)))
        self._numbers[key] = number

    def leave_out(self, key: str, parent: str | None) -> None:
        """Leave a message out."""
        self._numbers[key] = self.parent(parent)

    def branch_tip(self, key: str) -> int | None:
        """The number of the message that is shown last, or of the last one."""
        shown = self._numbers.get(key)
        return shown if shown is not None else (self.messages[-1].id if self.messages else None)


def joined_answers(
    messages: Sequence[Message], branch_tip: int | None
) -> tuple[tuple[Message, ...], int | None]:
    """Answers of one model in a row as one message, unless there are branches between them.

    Some programs store each step of an answer (thoughts, call of a tool, its result, text) as a
    separate message. Returns the messages and the id of the last one of the shown branch.
    """
    children = Counter(message.parent for message in messages)
    stands_for: dict[int, int] = {}
    made: dict[int, Message] = {}
    parts: dict[int, list[Parts]] = {}
    for message in messages:
        parent = None if message.parent is None else stands_for[message.parent]
        before = made.get(parent) if parent is not None else None
        is_step = before and message.role is before.role is Role.ASSISTANT
        if before and is_step and children[message.parent] == 1:
            stands_for[message.id] = before.id
            parts[before.id].append(message.parts)
            made[before.id] = replace(
                before, model=before.model or message.model, state=message.state, stop=message.stop
            )
        else:
            stands_for[message.id] = message.id
            made[message.id] = replace(message, parent=parent)
            parts[message.id] = [message.parts]
    joined = tuple(replace(each, parts=_joined(parts[each.id])) for each in made.values())
    return joined, None if branch_tip is None else stands_for.get(branch_tip)


def _joined(steps: Sequence[Parts]) -> Parts:
    """The parts of the steps of an answer, with blank lines between two texts."""
    if len(steps) == 1:
        return steps[0]
    parts = [part for step in steps for part in step]
    for n in range(1, len(parts)):
        part = parts[n]
        if isinstance(part, TextPart) and isinstance(parts[n - 1], TextPart):
            parts[n] = TextPart(f"\n\n{part.text}")
    return tuple(parts)


def chat_of(
    messages: Sequence[Message],
    *,
    title: str,
    created: float,
    updated: float,
    branch_tip: int | None,
    origin: str,
    instructions: str = "",
    pinned: bool = False,
    archived: bool = False,
) -> ChatTree:
    """The tree of a chat of another program, with the times of its messages where it has none."""
    times = [message.created for message in messages if message.created]
    created = created or min(times, default=0.0)
    updated = max(updated, max(times, default=0.0), created)
    filled: list[Message] = []
    last = created
    for message in messages:
        last = message.created or last
        filled.append(message if message.created else replace(message, created=last))
    return ChatTree(
        title=title,
        created=created,
        updated=updated,
        messages=tuple(filled),
        branch_tip=branch_tip,
        settings=ChatSettings(instructions=instructions) if instructions.strip() else NO_SETTINGS,
        pinned=pinned,
        archived=archived,
        origin=origin,
    )
