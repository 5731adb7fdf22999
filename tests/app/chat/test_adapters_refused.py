"""Adapters the engine refuses are switched off with the reason, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from adapter_stage import (
    FOLDER,
    FORMAL,
    PIRATE,
    REMEDY,
    SHORT,
    WRONG,
    AdapterStage,
    begin,
    uses,
)
from app.state.adapters import AdapterEntry
from app.state.chat import ModelPhase, ModelStatus
from engine import AdapterUse, SetAdapters


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[AdapterStage]:
    made = AdapterStage(tmp_path)
    made.wait_until_idle()
    yield made
    made.close()


# --- what the engine refuses ----------------------------------------------------------------------


def test_refused_adapter_is_switched_off_with_the_reason(
    stage: AdapterStage,
) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.accept()
    stage.adapters.add(FORMAL)
    stage.refuse()
    good, wrong = stage.shown.stack
    assert (good.on, good.error) == (True, "")
    assert (wrong.on, wrong.error, wrong.remedy) == (False, WRONG, REMEDY)
    assert stage.shown.applied == uses((PIRATE, 1.0))
    assert stage.engine.count(SetAdapters) == 2


def test_of_several_new_files_only_the_refused_ones_are_switched_off(stage: AdapterStage) -> None:
    for path in (PIRATE, FORMAL, SHORT, FOLDER / "damaged.gguf"):
        stage.adapters.add(path)
    stage.load()
    has = stage.answer_requests(bad={FORMAL, FOLDER / "damaged.gguf"})
    assert has == uses((PIRATE, 1.0), (SHORT, 1.0))
    assert [bool(entry.error) for entry in stage.shown.stack] == [False, True, False, True]


def test_refused_adapter_is_tried_again_when_switched_on(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    stage.adapters.set_on(0, True)
    assert stage.shown.stack[0].error == ""
    stage.accept()
    assert stage.shown.applied == uses((FORMAL, 1.0))


def test_another_model_starts_without_adapters_and_tries_all_again(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.accept()
    stage.adapters.add(FORMAL)
    stage.refuse()
    stage.load()
    assert stage.shown.applied == ()
    assert [(entry.on, entry.error) for entry in stage.shown.stack] == [(True, ""), (True, "")]
    assert stage.answer_requests(bad={PIRATE}) == uses((FORMAL, 1.0))


def test_refused_stack_without_new_files_is_switched_off_with_an_error(
    stage: AdapterStage,
) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.accept()
    stage.adapters.set_strength(0, 0.5)
    stage.adapters.flush()
    stage.refuse("There is no memory left.")
    assert stage.shown.fault == ("There is no memory left.", REMEDY)
    assert [entry.on for entry in stage.shown.stack] == [False]
    assert stage.start_answer(shown)
    assert stage.engine.last_generate.adapters == ()
    stage.accept()
    assert stage.shown.applied == ()


def test_engine_that_refuses_everything_gets_finitely_many_requests(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.accept()
    stage.adapters.set_on(0, False)
    stage.refuse("No.")
    assert stage.start_answer(shown)
    count = stage.engine.count(SetAdapters)
    assert stage.start_answer(shown)
    assert stage.engine.count(SetAdapters) == count


def test_refusal_after_unloading_switches_nothing_off(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.state.set_model(ModelStatus(ModelPhase.NONE))
    stage.refuse("No model is loaded.")
    assert stage.shown.stack == (AdapterEntry(PIRATE),)


def test_failed_load_keeps_the_stack(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.accept()
    left = stage.state.model
    stage.state.set_model(replace(left, phase=ModelPhase.LOADING))
    stage.state.set_model(replace(left, error="Not a model."))
    assert stage.start_answer(shown)
    assert stage.shown.applied == uses((PIRATE, 1.0))


def test_cancelled_load_keeps_the_stack_of_the_old_model(stage: AdapterStage) -> None:
    stage.load()
    begin(stage)
    stage.adapters.add(PIRATE)
    stage.accept()
    stage.load_and_cancel()
    stage.state.show(None)
    stage.engine.finish_load()  # the engine's report of the model it has kept
    stage.drain()
    assert stage.requested_stacks[-1] == ()
    stage.accept()
    assert stage.start_answer(None)


def test_changes_during_a_failed_load_apply_to_the_old_model(
    stage: AdapterStage,
) -> None:
    stage.load()
    begin(stage)
    left = stage.state.model
    stage.state.set_model(replace(left, phase=ModelPhase.LOADING))
    stage.adapters.add(PIRATE)
    assert stage.requested_stacks == []
    stage.state.set_model(replace(left, error="Not a model."))
    assert stage.requested_stacks == [uses((PIRATE, 1.0))]


PATHS = [FOLDER / f"{letter}.gguf" for letter in "abcde"]
ACTS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(PATHS)),
    st.tuples(st.just("remove"), st.integers(0, 5)),
    st.tuples(st.just("set_on"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("set_strength"), st.integers(0, 5), st.sampled_from([-2.0, 0.0, 0.5, 1.0])),
    st.tuples(st.just("move"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("show"), st.sampled_from([None, 1, 2])),
    st.tuples(st.just("ensure"), st.sampled_from([None, 1, 2])),
    st.tuples(st.just("load")),
    st.tuples(st.just("answer")),
)


@given(acts=st.lists(ACTS, max_size=25), bad=st.sets(st.sampled_from(PATHS)))
@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_after_any_actions_the_engine_has_the_shown_stack(
    qtbot: QtBot, tmp_path_factory: pytest.TempPathFactory, acts: list[tuple], bad: set[Path]
) -> None:
    stage = AdapterStage(tmp_path_factory.mktemp("acts"))
    for id in (1, 2):
        stage.store_queue.write(lambda store, id=id: store.create_conversation("Sky", id=id))
    stage.load()
    for name, *values in acts:
        match name:
            case "load":
                stage.answer_requests(bad)
                stage.load()
            case "answer":
                stage.answer_requests(bad)
            case "show":
                stage.state.show(*values)
            case "ensure":
                stage.start_answer(*values)
            case _:
                getattr(stage.adapters, name)(*values)
    stage.adapters.flush()
    shown = stage.state.current
    for _ in range(9):
        has = stage.answer_requests(bad)
        if stage.start_answer(shown):
            break
    assert stage.start_answer(shown)
    wanted = tuple(AdapterUse(e.path, e.strength) for e in stage.shown.stack if e.acts)
    assert has == wanted == stage.shown.applied
    assert not {use.path for use in wanted} & bad
    assert {entry.path for entry in stage.shown.stack if entry.error} <= bad
    stage.close()
