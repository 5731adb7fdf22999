"""The answer that is kept of two compared ones, with a fake engine."""

from __future__ import annotations

from adapter_stage import PIRATE
from app.chat.comparison import Side
from engine import FinishReason, Sampling
from fakes import MODEL
from scenes_adapters import add
from stage import Stage

COLD, WARM = Side(sampling=Sampling(temperature=0.2)), Side(sampling=Sampling(temperature=1.0))


def compare(stage: Stage, one: str, other: str) -> tuple[int, int]:
    """Compare two answers and write something of both; returns their requests."""
    stage.controller.send("Why?")
    stage.engine.write("Because.")
    stage.engine.finish()
    stage.drain()
    stage.controller.compare(stage.state.messages[-1].id, COLD, WARM)
    first, second = (command.request for command in stage.engine.unfinished)
    stage.engine.interleave({first: one, second: other})
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
