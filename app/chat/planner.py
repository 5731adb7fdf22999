"""What to send to the engine so that it holds a branch with its adapters, and answers there: as data.

The engine holds the cached context of one conversation and one stack of adapters. Whatever takes
their place is sent after the context was saved, and a saved context comes back after the adapters
it was computed with. That order is all of `plan`, which looks at two values and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine import (
    AdapterUse,
    Generate,
    LoadSnapshot,
    Role,
    SaveSnapshot,
    SetAdapters,
    Turn,
)

Uses = tuple[AdapterUse, ...]
Step = SaveSnapshot | SetAdapters | LoadSnapshot | Generate


@dataclass(frozen=True, slots=True)
class Branch:
    """One way through a conversation, as far as it goes; None is the conversation not begun yet."""

    conversation: int | None
    messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What the engine holds once it has carried out all that was sent."""

    adapters: Uses = ()
    branch: Branch | None = None  # whose context is cached; None: of none that is known
    unsaved: int | None = None  # conversation whose cached context is longer than the saved one
    unsaved_name: str = ""  # what it is saved as; empty while the store has given no number


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the engine is to be brought to."""

    branch: Branch
    adapters: Uses
    budget_bytes: int = 0  # disk space for saved contexts; 0: none is saved or loaded
    turns: tuple[Turn, ...] = ()  # of the branch, where its context is wanted back
    name: str = ""  # what that is saved as; empty: not saved yet
    answer: Generate | None = None  # to `turns`


def plan(held: Held, wanted: Wanted) -> tuple[Step, ...]:
    """The commands that bring the engine from one to the other, in order, with request 0."""
    steps: list[Step] = []
    loads = wanted.budget_bytes > 0 and wanted.name != "" and _needs_context(held, wanted)
    moves = held.unsaved != wanted.branch.conversation
    replaced = held.unsaved is not None and (moves or (loads and wanted.answer is None))
    if replaced and held.unsaved_name and wanted.budget_bytes > 0:
        steps.append(SaveSnapshot(0, held.unsaved_name, wanted.budget_bytes))
    if wanted.adapters != held.adapters:
        steps.append(SetAdapters(0, wanted.adapters))
    if loads:
        steps.append(LoadSnapshot(0, wanted.turns, wanted.name))
    if wanted.answer is not None:
        steps.append(wanted.answer)
    return tuple(steps)


def _needs_context(held: Held, wanted: Wanted) -> bool:
    """Whether the engine holds less of the branch than what may be saved of it."""
    said = sum(turn.role is not Role.SYSTEM for turn in wanted.turns)
    if wanted.answer is None:
        return said > 0 and held.branch != wanted.branch
    # An answer can reuse the cached prefix of any branch of the same conversation.
    here = held.branch is not None and held.branch.conversation == wanted.branch.conversation
    return said > 1 and not (here and held.adapters == wanted.adapters)
