"""Stacks of adapters: each conversation has its own, and the engine has the one an answer needs."""

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
from engine import Generate, SetAdapters
from stage import until


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[AdapterStage]:
    made = AdapterStage(tmp_path)
    made.wait_until_idle()
    yield made
    made.close()


# --- the stack ------------------------------------------------------------------------------------


def test_an_adapter_that_is_added_is_asked_of_the_engine(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    assert stage.requested_stacks == [uses((PIRATE, 1.0))]
    assert stage.shown.reading == {PIRATE}
    stage.accept()
    assert stage.shown.applied == uses((PIRATE, 1.0))
    assert stage.shown.infos[PIRATE].rank == 16
    assert not stage.shown.reading


def test_without_a_model_nothing_is_asked_until_one_is_there(stage: AdapterStage) -> None:
    stage.adapters.add(PIRATE)
    assert stage.engine.commands == []
    stage.load()
    assert stage.requested_stacks == [uses((PIRATE, 1.0))]


def test_what_is_off_or_without_strength_is_not_in_the_engines_stack(stage: AdapterStage) -> None:
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


def test_adding_what_is_there_switches_it_on_again(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.adapters.set_on(0, False)
    stage.adapters.add(PIRATE)
    assert stage.shown.stack == (AdapterEntry(PIRATE),)


@pytest.mark.parametrize(
    ("asked", "got"), [(9.0, 2.0), (-9.0, -2.0), (0.333333, 0.33), (-0.001, 0.0), (1, 1.0)]
)
def test_strength_stays_between_minus_two_and_two(
    stage: AdapterStage, asked: float, got: float
) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_strength(0, asked)
    assert math.copysign(1.0, stage.shown.stack[0].strength) == math.copysign(1.0, got)
    assert stage.shown.stack[0].strength == got


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf])
def test_a_strength_that_is_no_number_changes_nothing(stage: AdapterStage, nonsense: float) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_strength(0, nonsense)
    assert stage.shown.stack[0].strength == 1.0


def test_places_that_do_not_exist_change_nothing(stage: AdapterStage) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_on(3, False)
    stage.adapters.set_strength(-1, 0.5)
    stage.adapters.move(0, 1)
    stage.adapters.remove(-1)
    assert stage.shown.stack == (AdapterEntry(PIRATE),)


# --- a slider that is dragged ---------------------------------------------------------------------


def test_a_dragged_slider_is_followed_slowly_and_ends_where_it_was_let_go(
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


def test_a_slider_that_is_held_still_is_followed_without_being_let_go(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    stage.adapters.set_strength(0, 0.4)
    until(lambda: stage.engine.count(SetAdapters) == 2)
    assert stage.requested_stacks[-1] == uses((PIRATE, 0.4))


def test_while_the_engine_is_busy_only_the_last_change_is_asked(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    for step in range(1, 20):
        stage.adapters.set_strength(0, step / 20)
        stage.adapters.flush()
    assert stage.engine.count(SetAdapters) == 1
    stage.accept()
    assert stage.requested_stacks[1:] == [uses((PIRATE, 0.95))]


def test_a_change_during_an_answer_is_said_to_wait_for_the_next(stage: AdapterStage) -> None:
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
    stage.state.set_generation(None)
    assert not stage.shown.pending


# --- conversations --------------------------------------------------------------------------------


def test_each_conversation_has_its_own_stack(stage: AdapterStage) -> None:
    stage.load()
    one = begin(stage, -1)
    stage.adapters.add(PIRATE)
    stage.state.show(None)
    assert stage.shown.stack == ()
    two = begin(stage, -2)
    stage.adapters.add(FORMAL)
    stage.state.show(one)
    assert [entry.path for entry in stage.shown.stack] == [PIRATE]
    assert stage.answer_requests() == uses((PIRATE, 1.0))
    stage.state.show(two)
    assert stage.answer_requests() == uses((FORMAL, 1.0))


def test_a_stack_made_before_the_first_message_goes_with_the_conversation(
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


def test_what_was_refused_before_the_first_message_is_off_in_the_conversation(
    stage: AdapterStage,
) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    begin(stage)
    stage.refuse()
    assert stage.shown.stack[0].error == WRONG


def test_an_answer_may_begin_at_once_when_the_engine_has_its_stack(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    assert stage.start_answer(shown)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    commands = len(stage.engine.commands)
    assert stage.start_answer(shown)
    assert [type(each) for each in stage.engine.commands[commands:]] == [Generate]


def test_a_background_answer_waits_for_the_stack_of_its_conversation(stage: AdapterStage) -> None:
    stage.load()
    one = begin(stage, -1)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    stage.state.show(None)
    two = begin(stage, -2)
    stage.answer_requests()
    assert stage.shown.applied == ()
    assert not stage.start_answer(one)
    settled = stage.settled
    stage.accept()
    assert stage.settled == settled + 1
    assert stage.start_answer(one)
    assert stage.shown.applied == uses((PIRATE, 1.0))
    assert stage.shown.stack == ()
    assert not stage.start_answer(two)
    stage.accept()
    assert stage.start_answer(two)


def test_another_conversation_shown_meanwhile_does_not_lend_its_stack(stage: AdapterStage) -> None:
    stage.load()
    one = begin(stage, -1)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    stage.state.show(None)
    two = begin(stage, -2)
    stage.adapters.add(FORMAL)
    stage.answer_requests()
    assert not stage.start_answer(one)
    stage.state.show(None)
    stage.state.show(two)  # while the engine reads
    stage.answer_requests()
    assert stage.shown.applied == uses((FORMAL, 1.0))
    assert not stage.start_answer(one)
    stage.answer_requests()
    assert stage.start_answer(one)


def test_a_slider_moved_just_before_an_answer_counts_for_it(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    stage.adapters.set_strength(0, 0.25)
    assert not stage.start_answer(shown)
    stage.accept()
    assert stage.start_answer(shown)
    assert stage.shown.applied == uses((PIRATE, 0.25))


def test_a_bare_answer_has_no_adapters_and_the_next_has_them_again(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.answer_requests()
    assert not stage.start_answer(shown, without_adapters=True)
    stage.accept()
    assert stage.start_answer(shown, without_adapters=True)
    assert stage.shown.applied == ()
    assert [entry.on for entry in stage.shown.stack] == [True]
    assert not stage.start_answer(shown)
    stage.accept()
    assert stage.start_answer(shown)
