"""Planner: the engine commands that lead from the current state to a target, as a pure function.

The engine has the KV cache of one conversation and one stack of adapters. A command that replaces
them goes after the one that saves the cache, and a saved cache is loaded after the adapters it was
computed with. `plan` decides that order from its two arguments alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine import (
    AdapterUse,
    ContextPolicy,
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
    """A branch: a path of message ids through a conversation; None is the new chat."""

    conversation: int | None
    messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineState:
    """Adapters and cached context of the engine once it has run all commands sent."""

    adapters: Uses = ()
    branch: Branch | None = None  # whose context is cached; None: not known
    unsaved: int | None = None  # conversation whose cached context is longer than its snapshot
    unsaved_name: str = ""  # its snapshot name; empty while the store has given no number


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """Branch, adapters and answer that the engine has to reach."""

    branch: Branch
    adapters: Uses
    budget_bytes: int = 0  # disk space for cached conversations; 0: none is saved or loaded
    turns: tuple[Turn, ...] = ()  # of the branch; needed to load its snapshot
    name: str = ""  # its snapshot name; empty: not saved yet
    answer: Generate | None = None  # to `turns`
    policy: ContextPolicy = ContextPolicy.STOP  # of the conversation


def plan(current: EngineState, target: EngineTarget) -> tuple[Step, ...]:
    """The commands that lead from `current` to `target`, in order, with request 0."""
    steps: list[Step] = []
    loads = target.budget_bytes > 0 and target.name != "" and _needs_context(current, target)
    moves = current.unsaved != target.branch.conversation
    replaced = current.unsaved is not None and (moves or (loads and target.answer is None))
    if replaced and current.unsaved_name and target.budget_bytes > 0:
        steps.append(SaveSnapshot(0, current.unsaved_name, target.budget_bytes))
    if target.adapters != current.adapters:
        steps.append(SetAdapters(0, target.adapters))
    if loads:
        steps.append(LoadSnapshot(0, target.turns, target.name, target.policy))
    if target.answer is not None:
        steps.append(target.answer)
    return tuple(steps)


def _needs_context(current: EngineState, target: EngineTarget) -> bool:
    """Whether a snapshot may have more of the branch than the engine has cached."""
    turns = sum(turn.role is not Role.SYSTEM for turn in target.turns)
    if target.answer is None:
        return turns > 0 and current.branch != target.branch
    # An answer reuses the cached prefix of any branch of the same conversation.
    here = current.branch is not None and current.branch.conversation == target.branch.conversation
    return turns > 1 and not (here and current.adapters == target.adapters)
