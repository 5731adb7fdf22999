"""Planner: the engine commands that lead from the current state to a target, as a pure function.

The engine processes several conversations at once, each with the adapters that its commands name;
SetAdapters only loads and checks the files of a stack. The context that was cached last is saved
before another one, and a saved context is loaded before the answer that needs it. `plan` decides
that order from its two arguments alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine import (
    AdapterUse,
    Chat,
    ContextPolicy,
    Restore,
    Role,
    Save,
    SetAdapters,
    Tool,
    Turn,
)

Uses = tuple[AdapterUse, ...]
Step = Save | SetAdapters | Restore | Chat


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: a path of message ids through a conversation; None is the new chat."""

    conversation: int | None
    messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineState:
    """Adapters and cached context of the engine once it has run all commands sent."""

    adapters: Uses = ()  # of the last SetAdapters
    branch: Branch | None = None  # whose context was cached last; None: not known
    cached_with: Uses = ()  # the adapters of `branch`
    unsaved: int | None = None  # conversation whose cached context is longer than its snapshot


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """Branch, adapters and answer that the engine has to reach."""

    branch: Branch
    adapters: Uses
    budget_bytes: int = 0  # disk space for cached conversations; 0: none is saved or loaded
    turns: tuple[Turn, ...] = ()  # of the branch; needed to load its snapshot
    answer: Chat | None = None  # to `turns`
    policy: ContextPolicy = ContextPolicy.STOP  # of the conversation
    is_alternative: bool = (
        False  # the other answer of a comparison: the context of the first one is saved
    )
    tools: tuple[Tool, ...] = ()  # described in the prompt, before `turns`


def snapshot_name(conversation: int | None) -> str:
    """Snapshot name of a conversation, the same in every run; the new chat has none."""
    return "" if conversation is None else str(conversation)


def plan(current: EngineState, target: EngineTarget) -> tuple[Step, ...]:
    """The commands that lead from `current` to `target`, in order."""
    steps: list[Step] = []
    name = snapshot_name(target.branch.conversation)
    loads = target.budget_bytes > 0 and name != "" and _needs_context(current, target)
    moves = current.unsaved != target.branch.conversation
    replaced = current.unsaved is not None and (moves or (loads and target.answer is None))
    if replaced and target.budget_bytes > 0:
        steps.append(Save(snapshot_name(current.unsaved), target.budget_bytes))
    if target.answer is None and target.adapters != current.adapters:
        steps.append(SetAdapters(target.adapters))
    if loads:
        steps.append(
            Restore(target.turns, name, target.policy, target.adapters, tools=target.tools)
        )
    if target.answer is not None:
        steps.append(replace(target.answer, adapters=target.adapters))
    return tuple(steps)


def _needs_context(current: EngineState, target: EngineTarget) -> bool:
    """Whether a snapshot may have more of the branch than the engine has cached."""
    turns = sum(turn.role is not Role.SYSTEM for turn in target.turns)
    same_adapters = current.cached_with == target.adapters
    if target.answer is None:
        return turns > 0 and not (current.branch == target.branch and same_adapters)
    # An answer reuses the cached prefix of any branch of the same conversation.
    here = current.branch is not None and current.branch.conversation == target.branch.conversation
    return turns > 1 and not (here and same_adapters)
