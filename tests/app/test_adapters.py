"""Stacks of adapters: each conversation has its own, and the engine has the one an answer needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from adapter_stage import DIGEST, FOLDER, FORMAL, PIRATE, REMEDY, SHORT, WRONG, AdapterStage
from app.adapter_state import AdapterEntry, adapter_name, adapter_path, is_adapter_name
from app.state import ModelPhase, ModelStatus
from app.store import AdapterMark, Message, MessageState, Store
from engine import AdapterUse, LoadModel, Role, SetAdapters
from fakes import MODEL
from stage import until


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[AdapterStage]:
    made = AdapterStage(tmp_path)
    made.settle()
    yield made
    made.close()


def again(stage: AdapterStage, tmp_path: Path) -> AdapterStage:
    """Close the app and start it again."""
    stage.close()
    made = AdapterStage(tmp_path)
    made.settle()
    return made


def begin(stage: AdapterStage, number: int = -1, title: str = "Sky") -> int:
    """A conversation begins with its first message, as the controller has it."""
    archive = stage.archive
    archive.write(
        lambda store: archive.conversations.pair(number, store.create_conversation(title).id)
    )
    stage.adapters.begin(number)
    stage.state.show(number, [])
    return number


def answer(stage: AdapterStage, conversation: int, number: int = -10) -> int:
    """An answer that is asked for, as the controller makes it."""
    archive = stage.archive

    def write(store: Store) -> None:
        stored = archive.conversations.stored(conversation)
        made = store.add_message(stored, None, Role.ASSISTANT, "", MessageState.STREAMING)
        archive.messages.pair(number, made.id)

    archive.write(write)
    streaming = MessageState.STREAMING
    stage.state.add(
        Message(number, conversation, None, Role.ASSISTANT, "", streaming, 0, "", "", 0, 0, 0, 1, 1)
    )
    return number


def uses(*pairs: tuple[Path, float]) -> tuple[AdapterUse, ...]:
    return tuple(AdapterUse(path, strength) for path, strength in pairs)


# --- the stack ------------------------------------------------------------------------------------


def test_an_adapter_that_is_added_is_asked_of_the_engine(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    assert stage.asked == [uses((PIRATE, 1.0))]
    assert stage.shown.reading == {PIRATE}
    stage.grant()
    assert stage.shown.applied == uses((PIRATE, 1.0))
    assert stage.shown.infos[PIRATE].rank == 16
    assert not stage.shown.reading


def test_without_a_model_nothing_is_asked_until_one_is_there(stage: AdapterStage) -> None:
    stage.adapters.add(PIRATE)
    assert stage.engine.commands == []
    stage.load()
    assert stage.asked == [uses((PIRATE, 1.0))]


def test_what_is_off_or_without_strength_is_not_in_the_engines_stack(stage: AdapterStage) -> None:
    stage.load()
    for path in (PIRATE, FORMAL, SHORT):
        stage.adapters.add(path)
    stage.adapters.set_on(0, False)
    stage.adapters.set_strength(1, 0.0)
    stage.adapters.settle()
    assert stage.play() == uses((SHORT, 1.0))
    assert [entry.path for entry in stage.shown.stack] == [PIRATE, FORMAL, SHORT]


def test_order_push_pop_and_clear(stage: AdapterStage) -> None:
    stage.load()
    for path in (PIRATE, FORMAL, SHORT):
        stage.adapters.add(path)
    stage.adapters.move(2, 0)
    assert stage.play() == uses((SHORT, 1.0), (PIRATE, 1.0), (FORMAL, 1.0))
    stage.adapters.pop()
    assert stage.play() == uses((SHORT, 1.0), (PIRATE, 1.0))
    stage.adapters.remove(0)
    assert stage.play() == uses((PIRATE, 1.0))
    stage.adapters.clear()
    assert stage.play() == ()
    stage.adapters.pop()
    stage.adapters.clear()
    assert stage.asked[-1] == ()
    assert stage.engine.count(SetAdapters) == len(stage.asked)


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
    stage.play()
    for step in range(1, 100):
        stage.adapters.set_strength(0, step / 100)
    assert stage.engine.count(SetAdapters) == 1
    assert stage.shown.stack[0].strength == 0.99
    stage.adapters.settle()
    assert stage.asked[1:] == [uses((PIRATE, 0.99))]


def test_a_slider_that_is_held_still_is_followed_without_being_let_go(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.play()
    stage.adapters.set_strength(0, 0.4)
    until(lambda: stage.engine.count(SetAdapters) == 2)
    assert stage.asked[-1] == uses((PIRATE, 0.4))


def test_while_the_engine_is_busy_only_the_last_change_is_asked(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    for step in range(1, 20):
        stage.adapters.set_strength(0, step / 20)
        stage.adapters.settle()
    assert stage.engine.count(SetAdapters) == 1
    stage.grant()
    assert stage.asked[1:] == [uses((PIRATE, 0.95))]


def test_a_change_during_an_answer_is_said_to_wait_for_the_next(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.play()
    assert stage.adapters.ensure(shown)
    stage.write(shown)
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
    assert stage.play() == uses((PIRATE, 1.0))
    stage.state.show(two)
    assert stage.play() == uses((FORMAL, 1.0))


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
    assert stage.adapters.ensure(shown)
    stage.adapters.add(PIRATE)
    stage.play()
    commands = len(stage.engine.commands)
    assert stage.adapters.ensure(shown)
    assert len(stage.engine.commands) == commands


def test_a_background_answer_waits_for_the_stack_of_its_conversation(stage: AdapterStage) -> None:
    stage.load()
    one = begin(stage, -1)
    stage.adapters.add(PIRATE)
    stage.play()
    stage.state.show(None)
    two = begin(stage, -2)
    stage.play()
    assert stage.shown.applied == ()
    assert not stage.adapters.ensure(one)
    settled = stage.settled
    stage.grant()
    assert stage.settled == settled + 1
    assert stage.adapters.ensure(one)
    assert stage.shown.applied == uses((PIRATE, 1.0))
    assert stage.shown.stack == ()
    assert not stage.adapters.ensure(two)
    stage.grant()
    assert stage.adapters.ensure(two)


def test_another_conversation_shown_meanwhile_does_not_lend_its_stack(stage: AdapterStage) -> None:
    stage.load()
    one = begin(stage, -1)
    stage.adapters.add(PIRATE)
    stage.play()
    stage.state.show(None)
    two = begin(stage, -2)
    stage.adapters.add(FORMAL)
    stage.play()
    assert not stage.adapters.ensure(one)
    stage.state.show(None)
    stage.state.show(two)  # while the engine reads
    stage.play()
    assert stage.shown.applied == uses((FORMAL, 1.0))
    assert not stage.adapters.ensure(one)
    stage.play()
    assert stage.adapters.ensure(one)


def test_a_slider_moved_just_before_an_answer_counts_for_it(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.play()
    stage.adapters.set_strength(0, 0.25)
    assert not stage.adapters.ensure(shown)
    stage.grant()
    assert stage.adapters.ensure(shown)
    assert stage.shown.applied == uses((PIRATE, 0.25))


def test_a_bare_answer_has_no_adapters_and_the_next_has_them_again(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.play()
    assert not stage.adapters.ensure(shown, bare=True)
    stage.grant()
    assert stage.adapters.ensure(shown, bare=True)
    assert stage.shown.applied == ()
    assert [entry.on for entry in stage.shown.stack] == [True]
    assert not stage.adapters.ensure(shown)
    stage.grant()
    assert stage.adapters.ensure(shown)


# --- what the engine refuses ----------------------------------------------------------------------


def test_what_is_refused_is_switched_off_with_the_reason_and_the_others_stay(
    stage: AdapterStage,
) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.grant()
    stage.adapters.add(FORMAL)
    stage.refuse()
    good, wrong = stage.shown.stack
    assert (good.on, good.error) == (True, "")
    assert (wrong.on, wrong.error, wrong.remedy) == (False, WRONG, REMEDY)
    assert stage.shown.applied == uses((PIRATE, 1.0))
    assert stage.engine.count(SetAdapters) == 2


def test_of_several_new_files_the_wrong_ones_alone_are_blamed(stage: AdapterStage) -> None:
    for path in (PIRATE, FORMAL, SHORT, FOLDER / "damaged.gguf"):
        stage.adapters.add(path)
    stage.load()
    has = stage.play(bad={FORMAL, FOLDER / "damaged.gguf"})
    assert has == uses((PIRATE, 1.0), (SHORT, 1.0))
    assert [bool(entry.error) for entry in stage.shown.stack] == [False, True, False, True]


def test_what_was_refused_is_tried_again_when_it_is_switched_on(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    stage.adapters.set_on(0, True)
    assert stage.shown.stack[0].error == ""
    stage.grant()
    assert stage.shown.applied == uses((FORMAL, 1.0))


def test_another_model_begins_without_adapters_and_tries_all_again(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.grant()
    stage.adapters.add(FORMAL)
    stage.refuse()
    stage.load()
    assert stage.shown.applied == ()
    assert [(entry.on, entry.error) for entry in stage.shown.stack] == [(True, ""), (True, "")]
    assert stage.play(bad={PIRATE}) == uses((FORMAL, 1.0))


def test_a_stack_refused_for_no_file_of_its_own_is_switched_off_and_said(
    stage: AdapterStage,
) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.grant()
    stage.adapters.set_strength(0, 0.5)
    stage.adapters.settle()
    stage.refuse("There is no memory left.")
    assert stage.shown.fault == ("There is no memory left.", REMEDY)
    assert [entry.on for entry in stage.shown.stack] == [False]
    assert not stage.adapters.ensure(shown)
    stage.grant()
    assert stage.adapters.ensure(shown)
    assert stage.shown.applied == ()


def test_an_engine_that_refuses_everything_is_not_asked_for_ever(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.grant()
    stage.adapters.set_on(0, False)
    stage.refuse("No.")
    assert stage.adapters.ensure(shown)
    count = stage.engine.count(SetAdapters)
    assert stage.adapters.ensure(shown)
    assert stage.engine.count(SetAdapters) == count


def test_a_refusal_that_comes_when_the_model_is_gone_blames_nothing(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(PIRATE)
    stage.state.set_model(ModelStatus(ModelPhase.NONE))
    stage.refuse("No model is loaded.")
    assert stage.shown.stack == (AdapterEntry(PIRATE),)


def test_a_load_that_fails_leaves_the_stack_in_force(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.grant()
    left = stage.state.model
    stage.state.set_model(replace(left, phase=ModelPhase.LOADING))
    stage.state.set_model(replace(left, error="Not a model."))
    assert stage.adapters.ensure(shown)
    assert stage.shown.applied == uses((PIRATE, 1.0))


def test_a_load_given_up_leaves_the_stack_of_the_model_that_stays(stage: AdapterStage) -> None:
    stage.load()
    begin(stage)
    stage.adapters.add(PIRATE)
    stage.grant()
    stage.state.set_model(replace(stage.state.model, phase=ModelPhase.LOADING))
    stage.link.cancel(stage.link.send(lambda number: LoadModel(number, MODEL)))
    stage.state.show(None)
    stage.engine.finish_load()  # what the engine says of the model it has kept
    stage.drain()
    assert not stage.adapters.ensure(None)
    assert stage.asked[-1] == ()
    stage.grant()
    assert stage.adapters.ensure(None)


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
def test_whatever_is_done_the_engine_ends_with_what_is_shown(
    qtbot: QtBot, tmp_path_factory: pytest.TempPathFactory, acts: list[tuple], bad: set[Path]
) -> None:
    stage = AdapterStage(tmp_path_factory.mktemp("acts"))
    for title in ("one", "two"):
        stage.archive.write(lambda store, title=title: store.create_conversation(title))
    stage.load()
    for name, *values in acts:
        match name:
            case "load":
                stage.play(bad)
                stage.load()
            case "answer":
                stage.play(bad)
            case "show":
                stage.state.show(*values)
            case _:
                getattr(stage.adapters, name)(*values)
    stage.adapters.settle()
    shown = stage.state.current
    for _ in range(9):
        has = stage.play(bad)
        if stage.adapters.ensure(shown):
            break
    assert stage.adapters.ensure(shown)
    wanted = tuple(AdapterUse(e.path, e.strength) for e in stage.shown.stack if e.acts)
    assert has == wanted == stage.shown.applied
    assert not {use.path for use in wanted} & bad
    assert {entry.path for entry in stage.shown.stack if entry.error} <= bad
    stage.close()


# --- kept -----------------------------------------------------------------------------------------


def test_stacks_come_back_after_a_restart(stage: AdapterStage, tmp_path: Path) -> None:
    begin(stage)
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_strength(1, -0.75)
    stage.adapters.set_on(0, False)
    stage.state.show(None)
    stage.adapters.add(SHORT)
    number = stage.archive.conversations
    stage.settle()
    stored = number.stored(-1)
    later = again(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(SHORT),)
    later.state.show(stored)
    assert later.shown.stack == (
        AdapterEntry(PIRATE, on=False),
        AdapterEntry(FORMAL, strength=-0.75),
    )
    assert {known.path for known in later.shown.known} == {PIRATE, FORMAL, SHORT}
    later.close()


def test_a_slider_just_moved_is_kept_when_the_app_closes(
    stage: AdapterStage, tmp_path: Path
) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_strength(0, 0.2)
    later = again(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(PIRATE, strength=0.2),)
    later.close()


def test_what_was_refused_is_wanted_again_after_a_restart(
    stage: AdapterStage, tmp_path: Path
) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    later = again(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(FORMAL),)
    later.close()


def test_mixes_are_kept_applied_replaced_and_deleted(stage: AdapterStage, tmp_path: Path) -> None:
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
    later = again(stage, tmp_path)
    assert list(later.shown.mixes) == ["Brief", "Calm sea"]
    later.adapters.delete_mix("Brief")
    later.adapters.delete_mix("Brief")
    last = again(later, tmp_path)
    assert list(last.shown.mixes) == ["Calm sea"]
    last.close()


def test_a_mix_keeps_what_is_wanted_not_what_the_engine_said(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    stage.adapters.save_mix("German")
    assert stage.shown.mixes["German"] == (AdapterEntry(FORMAL),)
    assert stage.shown.mix == "German"


def test_files_that_have_gone_are_known_to_be_missing(stage: AdapterStage, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.write_bytes(b"GGUF")
    stage.adapters.add(there)
    stage.adapters.add(PIRATE)
    stage.adapters.find()
    stage.settle()
    assert [known.missing for known in stage.shown.known] == [False, True]


def test_all_is_written_again_into_a_store_that_lost_it(
    stage: AdapterStage, tmp_path: Path
) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.save_mix("Sea")
    stage.settle()
    stage.archive.write(lambda store: store.set_adapter_stack(None, ()))
    stage.archive.write(lambda store: store.set_adapter_mix("Sea", ()))
    stage.adapters.put_back()
    later = again(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(PIRATE),)
    assert list(later.shown.mixes) == ["Sea"]
    later.close()


# --- marks on answers -----------------------------------------------------------------------------


def test_an_answer_keeps_which_adapters_it_was_written_with(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_on(1, False)
    stage.adapters.set_strength(0, 0.8)
    stage.adapters.settle()
    stage.play()
    number = answer(stage, shown)
    assert stage.adapters.ensure(shown)
    stage.adapters.mark(number)
    marks = (AdapterMark("pirate-speech", 0.8, DIGEST[:12]),)
    message = stage.state.message(number)
    assert message is not None
    assert message.adapters == marks
    found: list[Message] = []
    stored = stage.archive.messages
    stage.archive.read(lambda store: store.message(stored.stored(number)), found.append)
    stage.settle()
    assert found[0].adapters == marks


def test_an_answer_without_adapters_gets_no_mark(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    number = answer(stage, shown)
    changed: list[Message] = []
    stage.state.message_changed.connect(changed.append)
    stage.adapters.mark(number)
    assert changed == []


def test_an_answer_continued_with_others_names_both(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    number = answer(stage, shown)
    for strength in (1.0, 0.5, 0.5):
        stage.adapters.add(PIRATE)
        stage.adapters.set_strength(0, strength)
        stage.adapters.settle()
        stage.play()
        stage.adapters.mark(number)
    message = stage.state.message(number)
    assert message is not None
    assert [mark.strength for mark in message.adapters] == [1.0, 0.5]


def test_a_mark_for_a_message_that_is_gone_is_dropped(stage: AdapterStage) -> None:
    stage.adapters.mark(12345)
    stage.settle()


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/short_answers.gguf", "short answers"),
        ("/a/Upper.GGUF", "Upper"),
        ("/a/run-1.5", "run-1.5"),
        ("/a/_.gguf", "/a/_.gguf"),
    ],
)
def test_adapters_are_called_by_their_files(path: str, name: str) -> None:
    assert adapter_name(Path(path)) == name


def test_a_file_inside_a_peft_folder_means_the_folder(tmp_path: Path) -> None:
    assert adapter_path(tmp_path / "adapter_config.json") == tmp_path
    assert adapter_path(tmp_path / "adapter_model.safetensors") == tmp_path
    assert adapter_path(tmp_path / "a.gguf") == tmp_path / "a.gguf"
    assert adapter_path(Path("a.gguf")).is_absolute()


def test_only_what_may_be_an_adapter_can_be_dropped(tmp_path: Path) -> None:
    assert is_adapter_name(tmp_path)
    assert is_adapter_name(tmp_path / "A.GGUF")
    assert is_adapter_name(tmp_path / "adapter_model.safetensors")
    assert not is_adapter_name(tmp_path / "notes.txt")
