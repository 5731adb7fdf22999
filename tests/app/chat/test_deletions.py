"""Deleting conversations, and undoing deletions in turn."""

from __future__ import annotations

from engine import Cancel
from fakes import MODEL
from stage import Stage


def ask(stage: Stage, text: str = "Why is the sky blue?") -> None:
    assert stage.controller.send(text)
    stage.drain()


def answer(stage: Stage, text: str = "Because of the air.") -> None:
    stage.engine.write(text)
    stage.engine.finish()
    stage.wait_until_idle()


def test_undo_restores_deletions_in_turn_the_last_one_first(stage: Stage) -> None:
    stage.ready(MODEL)
    for text in ("First", "Second", "Third"):
        stage.controller.new_conversation()
        ask(stage, text)
        answer(stage)
    third, second, first = stage.state.conversations
    stage.controller.deletions.delete([first.id])
    stage.controller.deletions.delete([third.id])
    assert [c.id for c in stage.state.conversations] == [second.id]
    assert stage.state.offered == 2
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert [c.title for c in stage.state.conversations] == ["Third", "Second"]
    assert stage.state.offered == 1
    stage.controller.deletions.undo()
    stage.controller.deletions.undo()  # nothing is left to undo
    stage.wait_until_idle()
    assert [c.title for c in stage.state.conversations] == ["Third", "Second", "First"]
    assert stage.state.offered == 0


def test_deleting_can_be_undone(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "Keep me")
    answer(stage)
    kept = stage.state.current
    assert kept is not None
    stage.controller.deletions.delete([kept])
    stage.wait_until_idle()
    assert stage.state.conversations == ()
    assert stage.state.current is None
    assert stage.state.deleted == {kept}
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert [conversation.title for conversation in stage.state.conversations] == ["Keep me"]
    assert stage.state.current == kept
    assert len(stage.state.messages) == 2


def test_deleting_stops_the_current_answer(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    assert stage.state.current is not None
    stage.controller.deletions.delete([stage.state.current])
    assert stage.engine.count(Cancel) == 1
