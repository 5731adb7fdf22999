"""Planner: the commands from each engine state to each target, in order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.requests.planner import Branch, EngineState, EngineTarget, Step, Uses, plan
from engine import (
    AdapterUse,
    Chat,
    Restore,
    Role,
    Save,
    SetAdapters,
    Turn,
)

BUDGET = 5_000_000_000
NONE: Uses = ()
PIRATE: Uses = (AdapterUse(Path("/adapters/pirate.gguf"), 1.0),)
SYSTEM, ASKED = Turn(Role.SYSTEM, "Be brief."), Turn(Role.USER, "Why?")
FIRST = (SYSTEM, ASKED)
LATER = (SYSTEM, ASKED, Turn(Role.ASSISTANT, "Because."), Turn(Role.USER, "And then?"))

SAVE = Save("1", BUDGET)
ADAPT, CLEAR = SetAdapters(PIRATE), SetAdapters(NONE)
LOAD = Restore(LATER, "2", adapters=NONE)
ASK, ANSWER = Chat(LATER), Chat(LATER, adapters=NONE)
ADAPTED = Chat(LATER, adapters=PIRATE)

ONE, TWO = Branch(1, (10, 11)), Branch(2, (20, 21))
LONGER = Branch(2, (20, 21, 22, 23))
EMPTY = EngineState()
FRESH = EngineState(branch=ONE, unsaved=1)  # an answer of the first has ended
SAVED = replace(FRESH, unsaved=None)

ANSWER_TWO = EngineTarget(TWO, NONE, BUDGET, LATER, ASK)
OPEN_TWO = EngineTarget(TWO, NONE, BUDGET)
RESTORE_TWO = EngineTarget(TWO, NONE, BUDGET, LATER)
SAVE_NOW = EngineTarget(Branch(None), NONE, BUDGET)

CASES: dict[str, tuple[EngineState, EngineTarget, list[Step]]] = {
    "answer: it names its adapters, and so does the load": (
        FRESH,
        replace(ANSWER_TWO, adapters=PIRATE),
        [SAVE, replace(LOAD, adapters=PIRATE), ADAPTED],
    ),
    "answer: with the adapters that are there": (FRESH, ANSWER_TWO, [SAVE, LOAD, ANSWER]),
    "answer: nothing to save": (SAVED, ANSWER_TWO, [LOAD, ANSWER]),
    "answer: into an empty engine": (EMPTY, ANSWER_TWO, [LOAD, ANSWER]),
    "answer: the adapters of the shown conversation do not matter": (
        replace(EMPTY, adapters=PIRATE),
        ANSWER_TWO,
        [LOAD, ANSWER],
    ),
    "answer: the context is there, for the same adapters": (
        replace(EMPTY, branch=TWO, cached_with=PIRATE),
        replace(ANSWER_TWO, adapters=PIRATE),
        [ADAPTED],
    ),
    "answer: the context is there": (replace(EMPTY, branch=TWO), ANSWER_TWO, [ANSWER]),
    "answer: on another branch of what is there": (
        replace(EMPTY, branch=LONGER, unsaved=2),
        ANSWER_TWO,
        [ANSWER],
    ),
    "answer: the context is there, but for other adapters": (
        replace(EMPTY, branch=TWO, unsaved=2),
        replace(ANSWER_TWO, adapters=PIRATE),
        [replace(LOAD, adapters=PIRATE), ADAPTED],
    ),
    "answer: to a first message": (
        EMPTY,
        replace(ANSWER_TWO, turns=FIRST, answer=Chat(FIRST)),
        [Chat(FIRST, adapters=NONE)],
    ),
    "answer: in a chat not begun yet there is nothing to load": (
        FRESH,
        replace(ANSWER_TWO, branch=Branch(None)),
        [SAVE, ANSWER],
    ),
    "answer: no disk space for contexts": (FRESH, replace(ANSWER_TWO, budget_bytes=0), [ANSWER]),
    "open: what is there is saved first": (
        FRESH,
        replace(OPEN_TWO, adapters=PIRATE),
        [SAVE, ADAPT],
    ),
    "open: adapters are taken away": (replace(SAVED, adapters=PIRATE), OPEN_TWO, [CLEAR]),
    "open: a chat not begun yet": (FRESH, SAVE_NOW, [SAVE]),
    "open: with the same adapters": (SAVED, OPEN_TWO, []),
    "slider: the context goes with the adapters": (
        FRESH,
        EngineTarget(Branch(1), PIRATE, BUDGET),
        [ADAPT],
    ),
    "restore: after a save": (FRESH, RESTORE_TWO, [SAVE, LOAD]),
    "restore: it is there": (replace(EMPTY, branch=TWO), RESTORE_TWO, []),
    "restore: it is there for other adapters": (
        replace(EMPTY, branch=TWO, cached_with=PIRATE),
        RESTORE_TWO,
        [LOAD],
    ),
    "restore: another branch of the same conversation": (
        EngineState(NONE, LONGER, NONE, 2),
        RESTORE_TWO,
        [Save("2", BUDGET), LOAD],
    ),
    "restore: nothing was said": (EMPTY, replace(RESTORE_TWO, turns=(SYSTEM,)), []),
    "restore: no disk space for contexts": (FRESH, replace(RESTORE_TWO, budget_bytes=0), []),
    "save: nothing is longer than what is saved": (SAVED, SAVE_NOW, []),
}


@pytest.mark.parametrize(("current", "target", "steps"), CASES.values(), ids=CASES.keys())
def test_plan_for_each_case(current: EngineState, target: EngineTarget, steps: list[Step]) -> None:
    assert list(plan(current, target)) == steps


BRANCHES = st.sampled_from([ONE, TWO, LONGER, Branch(None), Branch(3, (5,))])
STACKS = st.sampled_from([NONE, PIRATE])


@given(
    current=st.builds(
        EngineState,
        STACKS,
        st.none() | BRANCHES,
        STACKS,
        st.sampled_from([None, 1, 2, 3]),
    ),
    branch=BRANCHES,
    adapters=STACKS,
    budget=st.sampled_from([0, BUDGET]),
    turns=st.sampled_from([(), FIRST, LATER]),
    answers=st.booleans(),
)
def test_every_plan_has_the_order_save_adapters_load_answer(
    current: EngineState,
    branch: Branch,
    adapters: Uses,
    budget: int,
    turns: tuple[Turn, ...],
    answers: bool,
) -> None:
    answer = Chat(turns) if answers else None
    steps = plan(current, EngineTarget(branch, adapters, budget, turns, answer))
    kinds = [type(step) for step in steps]
    order = [Save, SetAdapters, Restore, Chat]
    assert kinds == [kind for kind in order if kind in kinds]
    assert (Chat in kinds) == answers
    assert (SetAdapters in kinds) == (not answers and adapters != current.adapters)
    named = [step.adapters for step in steps if not isinstance(step, Save)]
    assert all(each == adapters for each in named)
    if Save in kinds:
        assert budget > 0
        assert current.unsaved is not None
    names = [step.conversation for step in steps if isinstance(step, Save | Restore)]
    assert "" not in names
    assert set(names) <= {str(current.unsaved), str(branch.conversation)}
