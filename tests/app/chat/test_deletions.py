"""Deleting conversations, and undoing deletions in turn."""

from __future__ import annotations

import time

from app.store.store import KEEP_DELETED_SECONDS
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


def titles(stage: Stage) -> tuple[list[str], list[str]]:
    """The titles of the list, and those of the trash."""
    stage.wait_until_idle()
    state = stage.state
    return [c.title for c in state.conversations], [c.title for c in state.trash]


def test_the_trash_keeps_deleted_conversations_to_be_restored_or_removed(stage: Stage) -> None:
    stage.ready(MODEL)
    for text in ("First", "Second", "Third"):
        stage.controller.new_conversation()
        ask(stage, text)
        answer(stage)
    deletions = stage.controller.deletions
    _, second, first = (c.id for c in stage.state.conversations)
    deletions.delete([first])
    deletions.delete([second])
    assert titles(stage) == (["Third"], ["Second", "First"])
    deletions.restore([first])
    assert titles(stage) == (["Third", "First"], ["Second"])
    assert stage.state.current == first
    deletions.remove([second])
    deletions.undo()  # neither is left to undo
    assert titles(stage) == (["Third", "First"], [])


def test_old_conversations_leave_the_trash_daily(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "Old")
    answer(stage)
    (old,) = (c.id for c in stage.state.conversations)
    stage.controller.deletions.delete([old])
    assert titles(stage) == ([], ["Old"])
    stage.controller.deletions._daily.timeout.emit()
    assert titles(stage) == ([], ["Old"])
    days_ago = time.time() - KEEP_DELETED_SECONDS - 1
    stage.archive.write(
        lambda store: store._database.execute("UPDATE conversation SET deleted = ?", (days_ago,))
    )
    stage.controller.deletions._daily.timeout.emit()
    assert titles(stage) == ([], [])
