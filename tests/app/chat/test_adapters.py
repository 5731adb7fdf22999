"""Adapter stacks: one per conversation, and the engine gets the one an answer needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from adapter_stage import (
    FORMAL,
    PIRATE,
    SHORT,
    WRONG,
    AdapterStage,
    begin,
    uses,
)
from app.state.adapters import AdapterEntry
from engine import Chat, SetAdapters
from fakes import kind_of
from stage import until


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[AdapterStage]:
    made = AdapterStage(tmp_path)
    made.wait_until_idle()
    yield made
    made.close()


# --- the stack ------------------------------------------------------------------------------------


def test_added_adapter_is_sent_to_the_engine(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    assert stage.requested_stacks == [uses((PIRATE, 1.0))]
    assert stage.shown.reading == {PIRATE}
    stage.accept()
    assert stage.shown.applied == uses((PIRATE, 1.0))
    assert stage.shown.infos[PIRATE].rank == 16
    assert not stage.shown.reading


def test_no_stack_is_sent_before_a_model_is_loaded(stage: AdapterStage) -> None:
    stage.adapters.add(PIRATE)
    assert stage.engine.commands == []
    stage.load()
    assert stage.requested_stacks == [uses((PIRATE, 1.0))]


def test_adapters_off_or_at_strength_0_are_not_sent(stage: AdapterStage) -> None:
    stage.load()
    for path in (PIRATE, FORMAL, SHORT):
        stage.adapters.add(path)
    stage.adapters.set_on(0, False)
    stage.adapters.set_strength(1, 0.0)
    stage.adapters.flush()
    assert stage.answer_requests() == uses((SHORT, 1.0))
    assert [entry.path for entry in stage.shown.stack] == [PIRATE, FORMAL, SHORT]


def test_order_add_remove_and_clear(stage: AdapterStage) -> None:
    stage.load()
    for path in (PIRATE, FORMAL, SHORT):
        stage.adapters.add(path)
    stage.adapters.move(2, 0)
    assert stage.answer_requests() == uses((SHORT, 1.0), (PIRATE, 1.0), (FORMAL, 1.0))
    stage.adapters.remove(2)
    assert stage.answer_requests() == uses((SHORT, 1.0), (PIRATE, 1.0))
    stage.adapters.remove(0)
    assert stage.answer_requests() == uses((PIRATE, 1.0))
    stage.adapters.clear()
    assert stage.answer_requests() == ()
    stage.adapters.remove(0)
    stage.adapters.clear()
    assert stage.requested_stacks[-1] == ()
    assert stage.engine.count(SetAdapters) == len(stage.requested_stacks)


def test_adding_an_existing_adapter_switches_it_on(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.adapters.set_on(0, False)
    stage.adapters.add(PIRATE)
    assert stage.shown.stack == (AdapterEntry(PIRATE),)


@pytest.mark.parametrize(
    ("asked", "got"), [(9.0, 2.0), (-9.0, -2.0), (0.333333, 0.33), (-0.001, 0.0), (1, 1.0)]
)
def test_strength_is_limited_to_plus_minus_two(
    stage: AdapterStage, asked: float, got: float
) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_strength(0, asked)
    assert math.copysign(1.0, stage.shown.stack[0].strength) == math.copysign(1.0, got)
    assert stage.shown.stack[0].strength == got


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf])
def test_non_finite_strength_is_ignored(stage: AdapterStage, nonsense: float) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_strength(0, nonsense)
    assert stage.shown.stack[0].strength == 1.0


def test_invalid_indices_are_ignored(stage: AdapterStage) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_on(3, False)
    stage.adapters.set_strength(-1, 0.5)
    stage.adapters.move(0, 1)
    stage.adapters.remove(-1)
    assert stage.shown.stack == (AdapterEntry(PIRATE),)


# --- a slider that is dragged ---------------------------------------------------------------------


def test_dragged_slider_is_throttled_and_its_last_value_is_sent(
    stage: AdapterStage,
) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    for step in range(1, 100):
        stage.adapters.set_strength(0, step / 100)
    assert stage.engine.count(SetAdapters) == 1
    assert stage.shown.stack[0].strength == 0.99
    stage.adapters.flush()
    assert stage.requested_stacks[1:] == [uses((PIRATE, 0.99))]


def test_paused_slider_is_sent_without_being_released(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    stage.adapters.set_strength(0, 0.4)
    until(lambda: stage.engine.count(SetAdapters) == 2)
    assert stage.requested_stacks[-1] == uses((PIRATE, 0.4))


def test_only_the_last_change_is_sent_while_the_engine_is_busy(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    for step in range(1, 20):
        stage.adapters.set_strength(0, step / 20)
        stage.adapters.flush()
    assert stage.engine.count(SetAdapters) == 1
    stage.accept()
    assert stage.requested_stacks[1:] == [uses((PIRATE, 0.95))]


def test_change_during_an_answer_is_shown_as_pending(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    assert stage.start_answer(shown)
    stage.start_streaming(shown)
    assert not stage.shown.pending
    stage.adapters.set_on(0, False)
    assert stage.shown.pending
    stage.adapters.set_on(0, True)
    assert not stage.shown.pending
    stage.adapters.set_on(0, False)
    stage.state.end_generation(stage.request)
    assert not stage.shown.pending


# --- conversations --------------------------------------------------------------------------------


def test_each_conversation_has_its_own_stack(stage: AdapterStage) -> None:
    stage.load()
    one = begin(stage)
    stage.adapters.add(PIRATE)
    stage.state.show(None)
    assert stage.shown.stack == ()
    two = begin(stage)
    stage.adapters.add(FORMAL)
    stage.state.show(one)
    assert [entry.path for entry in stage.shown.stack] == [PIRATE]
    assert stage.answer_requests() == uses((PIRATE, 1.0))
    stage.state.show(two)
    assert stage.answer_requests() == uses((FORMAL, 1.0))


def test_stack_of_the_new_chat_moves_to_its_conversation(
    stage: AdapterStage,
) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    begun = begin(stage)
    assert [entry.path for entry in stage.shown.stack] == [PIRATE]
    stage.state.show(None)
    assert stage.shown.stack == ()
    stage.state.show(begun)
    assert [entry.path for entry in stage.shown.stack] == [PIRATE]


def test_adapter_refused_in_the_new_chat_stays_off(
    stage: AdapterStage,
) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    begin(stage)
    stage.refuse()
    assert stage.shown.stack[0].error == WRONG


def test_answer_starts_at_once_when_the_engine_has_its_stack(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    assert stage.start_answer(shown)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    commands = len(stage.engine.commands)
    assert stage.start_answer(shown)
    assert [kind_of(each) for each in stage.engine.commands[commands:]] == [Chat]


def test_a_background_answer_names_the_stack_of_its_conversation(stage: AdapterStage) -> None:
    stage.load()
    one = begin(stage)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    stage.state.show(None)
    two = begin(stage)
    stage.answer_requests()
    assert stage.start_answer(one)
    assert stage.engine.last_generate.adapters == stage.uses == uses((PIRATE, 1.0))
    assert stage.start_answer(two)
    assert stage.engine.last_generate.adapters == ()
    assert stage.shown.applied == stage.shown.stack == ()


def test_a_background_answer_waits_until_its_files_are_checked(stage: AdapterStage) -> None:
    one = begin(stage)
    stage.adapters.add(PIRATE)
    stage.state.show(None)
    begin(stage)
    stage.adapters.add(FORMAL)
    stage.load()
    stage.answer_requests()
    assert stage.shown.applied == uses((FORMAL, 1.0))
    assert not stage.start_answer(one)
    settled = stage.settled
    stage.accept()
    assert stage.settled == settled + 1
    assert stage.start_answer(one), "need not wait until the shown stack is set again"
    assert stage.engine.last_generate.adapters == uses((PIRATE, 1.0))
    stage.accept()
    assert stage.shown.applied == uses((FORMAL, 1.0))


def test_a_refused_file_of_a_background_answer_is_switched_off(stage: AdapterStage) -> None:
    one = begin(stage)
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.state.show(None)
    begin(stage)
    stage.load()
    assert not stage.start_answer(one)
    assert stage.answer_requests(bad={FORMAL}) == ()
    assert stage.start_answer(one)
    assert stage.engine.last_generate.adapters == uses((PIRATE, 1.0))
    stage.state.show(one)
    assert [(entry.on, entry.error) for entry in stage.shown.stack] == [(True, ""), (False, WRONG)]


def test_adapters_of_one_answer_are_checked_but_not_switched_off(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    given = uses((FORMAL, 0.5))
    assert stage.adapters.uses_for(shown, given) is None
    stage.refuse()
    assert stage.adapters.uses_for(shown, given) == given, "its answer fails with the reason"
    assert stage.shown.stack == ()
    assert stage.adapters.uses_for(shown, given) is None, "it is checked anew next time"
    stage.answer_requests()
    assert stage.adapters.uses_for(shown, given) == given
    assert stage.shown.applied == ()


def test_strength_changed_just_before_an_answer_applies_to_it(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    stage.adapters.set_strength(0, 0.25)
    assert stage.start_answer(shown)
    assert stage.engine.last_generate.adapters == uses((PIRATE, 0.25))


def test_answer_without_adapters_is_followed_by_one_with_them(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    assert stage.start_answer(shown, without_adapters=True)
    assert stage.engine.last_generate.adapters == ()
    assert [entry.on for entry in stage.shown.stack] == [True]
    assert stage.start_answer(shown)
    assert stage.engine.last_generate.adapters == uses((PIRATE, 1.0))
