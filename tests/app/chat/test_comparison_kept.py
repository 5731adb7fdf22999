"""The answer that is kept of two compared ones, also while the other is written; a fake engine."""

from __future__ import annotations

import pytest

from adapter_stage import PIRATE
from app.domain.generation_settings import GenerationSettings
from app.domain.message import Message, MessageState, StopReason
from engine import FinishReason, Sampling, Save
from fakes import MODEL, Cancel
from scenes_adapters import add
from stage import Stage, until

COLD, WARM = (
    GenerationSettings(sampling=Sampling(temperature=0.2)),
    GenerationSettings(sampling=Sampling(temperature=1.0)),
)


def compare(
    stage: Stage, one: str, other: str, second_side: GenerationSettings = WARM
) -> tuple[int, int]:
    """Compare two answers and write this much of both, if anything; returns their requests."""
    stage.controller.send("Why?")
    stage.engine.write("Because.")
    stage.engine.finish()
    stage.drain()
    stage.controller.compare(stage.state.messages[-1].id, COLD, second_side)
    first, second = (command.request for command in stage.engine.unfinished)
    texts = {first: one, second: other}
    stage.engine.interleave({request: text for request, text in texts.items() if text})
    stage.drain()
    return first, second


def test_changed_adapters_are_pending_while_a_kept_answer_is_continued(stage: Stage) -> None:
    stage.ready(MODEL)
    add(stage, stage.controller.adapters, PIRATE)
    requests = compare(stage, "It is", "Well")
    stage.controller.adapters.set_on(0, False)
    assert not stage.states.adapters.pending  # these two have adapters of their own
    stage.controller.adapters.set_on(0, True)
    stage.controller.stop()
    for request in requests:
        stage.engine.finish(FinishReason.CANCELLED, request=request)
    stage.wait_until_idle()
    kept = stage.state.messages[-1].id
    stage.controller.keep(kept)
    stage.controller.continue_answer(kept)
    (continued,) = stage.engine.unfinished
    stage.engine.write(" so", request=continued.request)
    stage.drain()
    assert not stage.states.adapters.pending
    stage.controller.adapters.set_on(0, False)
    assert stage.states.adapters.pending


def stored(stage: Stage, message_id: int) -> Message:
    """A message, read from the database file."""
    found: list[Message] = []
    stage.store_queue.read(lambda store: store.message(message_id), found.append)
    until(lambda: bool(found))
    return found[0]


@pytest.mark.parametrize("reason", [FinishReason.END, FinishReason.CANCELLED])
@pytest.mark.parametrize("left", [True, False])
def test_an_answer_that_has_ended_is_kept_while_the_other_is_written(
    stage: Stage, left: bool, reason: FinishReason
) -> None:
    stage.ready(MODEL)
    requests = compare(stage, "It is", "Well")
    shown = stage.state.messages[-1]
    pair = (shown, stage.state.compared[shown.id])
    kept, other = pair if left else pair[::-1]
    ended, going = requests if left else requests[::-1]
    stage.engine.finish(reason, request=ended)
    stage.drain()
    stage.controller.keep(kept.id)
    assert stage.state.messages[-1].id == kept.id
    assert not stage.state.messages[-1].undecided
    assert not stage.state.compared
    assert stage.engine.last(Cancel) == Cancel(going)
    stage.engine.write(", who", request=going)  # before the engine has seen Cancel
    stage.engine.finish(FinishReason.CANCELLED, request=going)
    stage.wait_until_idle()
    assert not stage.state.busy
    assert [message.id for message in stage.state.messages][1:] == [kept.id]
    lost = stored(stage, other.id)
    assert lost.text == other.text + ", who"
    assert (lost.state, lost.stop) == (MessageState.STOPPED, StopReason.USER)
    assert not lost.undecided
    assert lost.details is not None
    assert lost.details.temperature == (1.0 if left else 0.2)
    assert stored(stage, kept.id).text == kept.text
    stage.controller.sessions.save()
    saved = stage.engine.last(Save)
    assert isinstance(saved, Save)
    assert saved.answer == ended
    assert stage.controller.send("And then?")
    turns = stage.engine.last_generate.turns
    assert [turn.text for turn in turns][-2:] == [kept.text, "And then?"]
    stage.engine.finish()
    stage.drain()
    stage.controller.navigation.show_sibling(kept.id, 1 if left else -1)
    until(lambda: stage.state.messages[-1].id == other.id)
    assert stage.state.messages[-1].text == lost.text


def test_an_answer_that_has_not_begun_ends_at_once_when_the_other_is_kept(stage: Stage) -> None:
    stage.ready(MODEL)
    first, second = compare(stage, "", "Well")
    stage.engine.finish(request=second)
    stage.drain()
    shown = stage.state.messages[-1]
    kept = stage.state.compared[shown.id]
    stage.controller.keep(kept.id)
    assert stage.engine.last(Cancel) == Cancel(first)
    assert not stage.state.busy
    stage.wait_until_idle()
    assert stored(stage, shown.id).state is MessageState.STOPPED
    stage.controller.sessions.save()
    saved = stage.engine.last(Save)
    assert isinstance(saved, Save)
    assert saved.answer == second


def test_nothing_is_kept_while_another_branch_is_answered(stage: Stage) -> None:
    stage.ready(MODEL)
    requests = compare(stage, "It is", "Well")
    for request in requests:
        stage.engine.finish(request=request)
    stage.wait_until_idle()
    shown = stage.state.messages[-1]
    stage.controller.regenerate(shown.id)
    again = stage.state.messages[-1]
    stage.controller.navigation.show_sibling(again.id, -1)
    until(lambda: stage.state.messages[-1].id != again.id)
    pair = stage.state.messages[-1]
    assert pair.undecided
    stage.controller.keep(pair.id)
    assert stage.state.messages[-1].undecided
    assert stage.engine.count(Cancel) == 0


def test_adapters_are_not_pending_for_an_answer_that_is_stopped(stage: Stage) -> None:
    stage.ready(MODEL)
    add(stage, stage.controller.adapters, PIRATE)
    first, second = compare(stage, "It is", "Well", GenerationSettings(adapters=()))
    stage.engine.finish(request=first)
    stage.drain()
    stage.controller.keep(stage.state.messages[-1].id)
    assert stage.state.generations[second].stopping
    assert not stage.states.adapters.pending
