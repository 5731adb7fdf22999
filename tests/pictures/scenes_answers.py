"""Scenes of several answers at once, for tests/pictures/shots.py."""

from __future__ import annotations

from scenes_chat import Scene, hover_row, ready
from stage import Stage, until

QUESTIONS = ("Name three quiet cafés", "Explain tides to a child", "Plan a day by the sea")


def answering(stage: Stage) -> None:
    """Two answers are written, one of them shown, and a third waits for its turn."""
    ready(stage)
    for text in QUESTIONS:
        stage.controller.new_conversation()
        stage.window.composer.submitted.emit(text)
        stage.wait_until_idle()
    cafes, tides, _ = stage.engine.unfinished
    stage.engine.interleave(
        {
            cafes.request: "The first one is by the old mill, where nobody is in a hurry.",
            tides.request: "The Moon pulls at the sea, and the water follows it. Twice a day",
        }
    )
    waiting = stage.state.messages[-1].id
    until(lambda: waiting in stage.state.waiting)
    stage.wait_until_idle()


def two_answering(stage: Stage) -> None:
    answering(stage)
    number = next(c.id for c in stage.state.conversations if c.title == QUESTIONS[1])
    stage.controller.open_conversation(number)
    stage.wait_until_idle()


def answer_waiting_its_turn(stage: Stage) -> None:
    answering(stage)


def stop_in_sidebar(stage: Stage) -> None:
    two_answering(stage)
    hover_row(stage, 3)


SCENES: dict[str, Scene] = {
    scene.__name__: scene for scene in (two_answering, answer_waiting_its_turn, stop_in_sidebar)
}
