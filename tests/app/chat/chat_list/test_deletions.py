"""Deleting conversations, and undoing deletions in turn."""

from __future__ import annotations

import time

from app.domain.chat import KEEP_DELETED_SECONDS
from engine import Chat
from fakes import MODEL, Cancel
from stage import Stage, until


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
    stage.store_queue.write(
        lambda store: store._database.execute("UPDATE conversation SET deleted = ?", (days_ago,))
    )
    stage.controller.deletions._daily.timeout.emit()
    assert titles(stage) == ([], [])


def texts(stage: Stage) -> list[str]:
    """The texts of the shown branch, which is also the stored one."""
    shown = [message.text for message in stage.state.messages]
    stage.wait_until_idle()
    assert [message.text for message in stage.state.messages] == shown
    stored: list[list[str]] = []
    current = stage.state.current
    assert current is not None
    stage.store_queue.read(
        lambda store: [message.text for message in store.branch(current)], stored.append
    )
    until(lambda: bool(stored))
    assert stored == [shown]
    return shown


def test_a_message_is_deleted_from_the_branch_and_undo_brings_it_back(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One")
    answer(stage, "First.")
    ask(stage, "Two")
    answer(stage, "Second.")
    whole = list(stage.state.messages)
    stage.controller.deletions.delete_message(whole[1].id)
    stage.controller.deletions.delete_message(whole[2].id)
    assert texts(stage) == ["One", "Second."]
    ask(stage, "Three")
    sent = stage.engine.last(Chat)
    assert [turn.text for turn in sent.turns] == ["One", "Second.", "Three"]
    stage.controller.deletions.undo()  # not while an answer is being written
    stage.controller.deletions.delete_message(whole[0].id)
    answer(stage, "Third.")
    stage.controller.new_conversation()
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert texts(stage) == ["One", "Two", "Second.", "Three", "Third."]
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert texts(stage) == ["One", "First.", "Two", "Second.", "Three", "Third."]
    assert stage.state.deletions == ()


def test_deleting_a_version_of_an_answer_shows_the_other_one(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One")
    answer(stage, "First.")
    stage.controller.regenerate(stage.state.messages[-1].id)
    stage.drain()
    answer(stage, "Again.")
    assert stage.state.messages[-1].siblings == 2
    stage.controller.deletions.delete_message(stage.state.messages[-1].id)
    stage.wait_until_idle()
    assert texts(stage) == ["One", "First."]
    assert stage.state.messages[-1].siblings == 1
    assert stage.window.sidebar.undo.words.text() == "Message deleted"
    stage.window.actions_by_id["undo"].trigger()
    stage.wait_until_idle()
    assert texts(stage) == ["One", "Again."]
    assert stage.state.messages[-1].siblings == 2
