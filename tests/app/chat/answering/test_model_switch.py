"""A model chosen while an answer is written is loaded after it, or at once when asked to."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chat.answering.model_switch import NOTICE
from app.domain.message import MessageState
from app.settings.model_settings import ModelDefaults
from app.state.chat import ModelPhase
from engine import Chat, FinishReason, Load, Unload
from fakes import MODEL, Cancel
from stage import Stage

OTHER = Path("/models/Other-1B.gguf")
THIRD = Path("/models/Third-2B.gguf")


@pytest.fixture
def writing(stage: Stage) -> Stage:
    stage.ready(MODEL)
    stage.controller.send("Why?")
    stage.engine.write("Because")
    stage.drain()
    return stage


def test_answer_is_finished_before_the_chosen_model_loads(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    assert writing.engine.count(Cancel) == 0
    assert writing.engine.count(Load) == 1
    assert "Other 1B loads after" in writing.state.notices[NOTICE].sentence
    writing.engine.finish()
    writing.drain()
    assert writing.state.messages[-1].state is MessageState.COMPLETE
    assert writing.engine.load.path == OTHER
    assert NOTICE not in writing.state.notices


def test_load_now_stops_the_answer(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.act_on_notice(NOTICE)
    assert writing.engine.last(Cancel) == Cancel(writing.engine.last_generate.request)
    writing.engine.finish(FinishReason.CANCELLED)
    writing.drain()
    assert writing.state.messages[-1].state is MessageState.STOPPED
    assert writing.engine.load.path == OTHER


def test_closing_the_notice_keeps_the_model(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.close_notice(NOTICE)
    writing.engine.finish()
    writing.drain()
    assert writing.engine.count(Load) == 1
    assert writing.state.model.path == MODEL


def test_last_chosen_model_counts(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.load_model(THIRD)
    writing.engine.finish()
    writing.drain()
    assert writing.engine.count(Load) == 2
    assert writing.engine.load.path == THIRD


def test_stopped_answer_is_followed_by_the_load(writing: Stage) -> None:
    writing.controller.stop()
    writing.controller.load_model(OTHER)
    assert NOTICE not in writing.state.notices
    writing.engine.finish(FinishReason.CANCELLED)
    writing.drain()
    assert writing.engine.load.path == OTHER


def test_message_sent_after_the_choice_is_answered_by_the_chosen_model(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.new_conversation()
    writing.controller.send("And this?")
    assert writing.engine.count(Chat) == 1
    assert list(writing.state.waiting.values()) == ["Queued: another answer is being written"]
    writing.engine.finish()
    writing.drain()
    assert writing.engine.count(Chat) == 1
    assert writing.engine.load.path == OTHER
    writing.engine.finish_load()
    writing.drain()
    assert writing.engine.count(Chat) == 2


def test_unloading_waits_for_the_answer(writing: Stage) -> None:
    writing.controller.unload_model()
    assert writing.engine.count(Unload) == 0
    writing.engine.finish()
    writing.drain()
    assert writing.engine.count(Unload) == 1
    writing.engine.finish_unload()
    writing.drain()
    assert writing.state.model.phase is ModelPhase.NONE


def test_quitting_makes_no_waiting_change(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.shut_down()
    writing.engine.finish(FinishReason.CANCELLED)
    writing.drain()
    assert writing.engine.count(Load) == 1


def test_model_in_use_is_not_loaded_again(stage: Stage) -> None:
    stage.ready(MODEL)
    loads = stage.engine.count(Load)
    stage.controller.load_model(MODEL)
    stage.wait_until_idle()
    assert stage.engine.count(Load) == loads
    assert stage.state.model.phase is ModelPhase.READY
    stage.controller.change_settings(context=1024)
    stage.controller.load_model(MODEL)
    stage.wait_until_idle()
    assert stage.engine.count(Load) == loads + 1
    stage.engine.finish_load()
    stage.controller.unload_model()
    stage.wait_until_idle()
    stage.controller.load_model(MODEL)
    assert stage.engine.count(Load) == loads + 2


def test_choosing_the_model_in_use_drops_the_waiting_change(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.load_model(MODEL)
    assert not writing.state.notices
    writing.engine.finish()
    writing.wait_until_idle()
    assert writing.engine.count(Load) == 1


def test_model_whose_load_was_cancelled_can_be_chosen_again(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.load_model(OTHER)
    stage.controller.models.cancel()
    stage.engine.cancel_load()
    stage.wait_until_idle()
    stage.controller.load_model(OTHER)
    assert stage.engine.load.path == OTHER
    assert stage.engine.count(Load) == 3


@pytest.fixture
def both(writing: Stage) -> Stage:
    """Two conversations are answered at once."""
    writing.controller.new_conversation()
    writing.controller.send("And this?")
    one, two = writing.engine.unfinished
    writing.engine.interleave({one.request: " of the", two.request: "Then this"})
    writing.drain()
    return writing


def test_chosen_model_waits_for_all_answers(both: Stage) -> None:
    one, two = both.engine.unfinished
    both.controller.load_model(OTHER)
    assert both.state.notices[NOTICE].sentence == "Other 1B loads after the current answers."
    both.engine.finish(request=two.request)
    both.drain()
    assert both.engine.count(Load) == 1
    both.engine.finish(request=one.request)
    both.drain()
    assert both.engine.load.path == OTHER
    assert both.engine.count(Cancel) == 0


def test_load_now_stops_all_answers(both: Stage) -> None:
    one, two = both.engine.unfinished
    both.controller.load_model(OTHER)
    both.controller.act_on_notice(NOTICE)
    stopped = {each.request for each in both.engine.commands if isinstance(each, Cancel)}
    assert {one.request, two.request} <= stopped
    for each in (two, one):
        assert both.engine.count(Load) == 1
        both.engine.finish(FinishReason.CANCELLED, request=each.request)
        both.drain()
    assert both.engine.load.path == OTHER
    assert both.state.messages[-1].state is MessageState.STOPPED


def test_keeping_the_model_requests_the_messages_sent_meanwhile(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.new_conversation()
    writing.controller.send("And this?")
    assert writing.engine.count(Chat) == 1
    writing.controller.close_notice(NOTICE)
    assert writing.engine.count(Chat) == 2


def test_quitting_requests_no_message_that_waits_for_the_chosen_model(writing: Stage) -> None:
    writing.controller.load_model(OTHER)
    writing.controller.new_conversation()
    writing.controller.send("And this?")
    writing.controller.shut_down()
    writing.engine.finish(FinishReason.CANCELLED)
    writing.drain()
    assert (writing.engine.count(Chat), writing.engine.count(Load)) == (1, 1)


def test_a_model_is_loaded_within_its_memory_limit(stage: Stage) -> None:
    stage.ready(MODEL)
    assert stage.engine.load.memory_bytes == 0
    stage.controller.change_settings(memory_gb=2.5)
    stage.controller.load_model(MODEL)  # the settings it is loaded with have changed
    assert stage.engine.load.memory_bytes == 2_500_000_000
    stage.engine.finish_load()
    stage.drain()
    stage.controller.library.defaults.change(MODEL, ModelDefaults(memory_gb=0.0))
    stage.controller.load_model(MODEL)
    assert stage.engine.load.memory_bytes == 0
