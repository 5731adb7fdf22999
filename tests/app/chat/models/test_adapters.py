"""Adapter stacks of chats: what the engine gets and refuses, and what a restart brings back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from adapter_stage import (
    DIGEST,
    FOLDER,
    FORMAL,
    PIRATE,
    REMEDY,
    SHORT,
    WRONG,
    AdapterStage,
    answer,
    begin,
    restart,
    uses,
)
from app.domain.message import AdapterMark, Message
from app.state.adapters import AdapterEntry, adapter_name, adapter_path, is_adapter_name
from app.state.chat import ModelPhase, ModelStatus
from engine import AdapterUse, Chat, SetAdapters
from fakes import kind_of
from stage import until
from store_contents import all_messages


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


# --- restart --------------------------------------------------------------------------------------


def test_stacks_are_restored_after_a_restart(stage: AdapterStage, tmp_path: Path) -> None:
    stored = begin(stage)
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_strength(1, -0.75)
    stage.adapters.set_on(0, False)
    stage.state.show(None)
    stage.adapters.add(SHORT)
    stage.wait_until_idle()
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(SHORT),)
    later.state.show(stored)
    assert later.shown.stack == (
        AdapterEntry(PIRATE, on=False),
        AdapterEntry(FORMAL, strength=-0.75),
    )
    assert {known.path for known in later.shown.known} == {PIRATE, FORMAL, SHORT}
    later.close()


def test_strength_changed_just_before_closing_is_saved(stage: AdapterStage, tmp_path: Path) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_strength(0, 0.2)
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(PIRATE, strength=0.2),)
    later.close()


def test_refused_adapter_is_tried_again_after_a_restart(
    stage: AdapterStage, tmp_path: Path
) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(FORMAL),)
    later.close()


def test_mixes_are_saved_applied_replaced_and_deleted(stage: AdapterStage, tmp_path: Path) -> None:
    stage.adapters.save_mix("nothing to keep")
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_strength(0, 0.5)
    stage.adapters.save_mix("  Calm \n sea ")
    assert stage.shown.mix == "Calm sea"
    stage.adapters.clear()
    assert stage.shown.mix == ""
    stage.adapters.add(SHORT)
    stage.adapters.save_mix("Brief")
    stage.adapters.apply_mix("Calm sea")
    assert stage.shown.stack == (AdapterEntry(PIRATE, strength=0.5), AdapterEntry(FORMAL))
    stage.adapters.apply_mix("no such mix")
    later = restart(stage, tmp_path)
    assert list(later.shown.mixes) == ["Brief", "Calm sea"]
    later.adapters.delete_mix("Brief")
    later.adapters.delete_mix("Brief")
    last = restart(later, tmp_path)
    assert list(last.shown.mixes) == ["Calm sea"]
    last.close()


def test_mix_does_not_store_errors_of_the_engine(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    stage.adapters.save_mix("German")
    assert stage.shown.mixes["German"] == (AdapterEntry(FORMAL),)
    assert stage.shown.mix == "German"


def test_deleted_files_are_marked_missing(stage: AdapterStage, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.write_bytes(b"GGUF")
    stage.adapters.add(there)
    stage.adapters.add(PIRATE)
    stage.adapters.find_missing()
    stage.wait_until_idle()
    assert [known.missing for known in stage.shown.known] == [False, True]


def test_everything_is_written_again_after_a_repair(stage: AdapterStage, tmp_path: Path) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.save_mix("Sea")
    stage.wait_until_idle()
    stage.store_queue.write(lambda store: store.set_settings(None, ""))
    stage.store_queue.write(lambda store: store.set_adapter_mix("Sea", ()))
    stage.adapters.write_all()
    stage.settings.write_all()
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(PIRATE),)
    assert list(later.shown.mixes) == ["Sea"]
    later.close()


# --- marks on answers -----------------------------------------------------------------------------


def test_answer_stores_its_adapters(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_on(1, False)
    stage.adapters.set_strength(0, 0.8)
    stage.adapters.flush()
    stage.answer_requests()
    number = answer(stage, shown)
    assert stage.start_answer(shown)
    stage.adapters.record_on(number, stage.uses)
    marks = (AdapterMark("pirate-speech", 0.8, DIGEST[:12]),)
    message = stage.state.message(number)
    assert message is not None
    assert message.adapters == marks
    found: list[Message] = []
    stage.store_queue.read(lambda store: all_messages(store)[number], found.append)
    stage.wait_until_idle()
    assert found[0].adapters == marks


def test_answer_without_adapters_has_no_mark(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    number = answer(stage, shown)
    changed: list[Message] = []
    stage.state.message_changed.connect(changed.append)
    stage.adapters.record_on(number, ())
    assert changed == []


def test_answer_continued_with_other_adapters_stores_both(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    number = answer(stage, shown)
    for strength in (1.0, 0.5, 0.5):
        stage.adapters.add(PIRATE)
        stage.adapters.set_strength(0, strength)
        stage.adapters.flush()
        stage.answer_requests()
        assert stage.start_answer(shown)
        stage.adapters.record_on(number, stage.uses)
    message = stage.state.message(number)
    assert message is not None
    assert [mark.strength for mark in message.adapters] == [1.0, 0.5]


def test_mark_for_a_deleted_message_is_dropped(
    stage: AdapterStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.adapters.record_on(12345, uses((PIRATE, 1.0)))
    stage.wait_until_idle()
    assert "its row no longer exists" in caplog.text
    caplog.clear()


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/short_answers.gguf", "short answers"),
        ("/a/Upper.GGUF", "Upper"),
        ("/a/run-1.5", "run-1.5"),
        ("/a/_.gguf", str(Path("/a/_.gguf"))),
    ],
)
def test_adapter_names_come_from_their_files(path: str, name: str) -> None:
    assert adapter_name(Path(path)) == name


def test_file_in_a_peft_folder_resolves_to_the_folder(tmp_path: Path) -> None:
    assert adapter_path(tmp_path / "adapter_config.json") == tmp_path
    assert adapter_path(tmp_path / "adapter_model.safetensors") == tmp_path
    assert adapter_path(tmp_path / "a.gguf") == tmp_path / "a.gguf"
    assert adapter_path(Path("a.gguf")).is_absolute()


def test_only_possible_adapters_can_be_dropped(tmp_path: Path) -> None:
    assert is_adapter_name(tmp_path)
    assert is_adapter_name(tmp_path / "A.GGUF")
    assert is_adapter_name(tmp_path / "adapter_model.safetensors")
    assert not is_adapter_name(tmp_path / "notes.txt")


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
