"""One id each: conversations and messages have the same ids in the state, the store and a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.domain.answer_details import AnswerDetails
from app.domain.generation_settings import GenerationSettings
from app.domain.ids import new_id
from app.domain.message import AnswerAgain, Message, MessageState
from app.store.store import Store, StoreError
from engine import Role, Sampling
from fakes import MODEL
from stage import Stage, until
from store_contents import all_messages


def shape(message: Message) -> tuple[int, int, int | None, int, bool, str]:
    number, conversation = message.id, message.conversation
    return number, conversation, message.parent, message.compared, message.undecided, message.text


def check(stage: Stage) -> list[int]:
    """Compare the shown conversation with the store; returns the ids of its branch."""
    stage.wait_until_idle()
    state = stage.state
    number = state.current
    assert number is not None
    found: list[tuple[list[int], list[Message], list[Message]]] = []

    def read(store: Store) -> tuple[list[int], list[Message], list[Message]]:
        branch = store.branch(number)
        return [each.id for each in store.conversations()], branch, store.others(branch)

    stage.store_queue.read(read, found.append)
    until(lambda: bool(found))
    listed, branch, others = found[0]
    assert listed == [each.id for each in state.conversations]
    assert [shape(each) for each in branch] == [shape(each) for each in state.messages]
    shown = [state.compared[each.id] for each in state.messages if each.id in state.compared]
    assert [shape(each) for each in others] == [shape(each) for each in shown]
    for each in (*branch, *others):
        assert each.conversation == number
        assert each.id > 1 << 31
    return [each.id for each in branch]


def answer(stage: Stage, text: str) -> None:
    for asked in stage.engine.unfinished:
        stage.engine.write(text, request=asked.request)
        stage.engine.finish(request=asked.request)
    stage.wait_until_idle()


def test_a_whole_chat_has_the_same_ids_in_the_state_and_the_store(
    qtbot: QtBot, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    chat, controller = stage.window.chat, stage.controller
    controller.send("Why?")
    answer(stage, "Because.")
    asked, first = check(stage)
    chat.transcript.regenerate_requested.emit(first, AnswerAgain.SAME)
    answer(stage, "So.")
    _, second = check(stage)
    assert asked < first < second
    warm = GenerationSettings(sampling=Sampling(temperature=1.0))
    controller.compare(second, warm, GenerationSettings())
    assert check(stage)[0] == asked
    answer(stage, "Well.")
    left = stage.state.messages[-1].id
    right = stage.state.compared[left].id
    assert second < left < right
    check(stage)
    chat.transcript.keep_requested.emit(right)
    assert check(stage) == [asked, right]
    chat.transcript.edit_submitted.emit(asked, "And why not?")
    answer(stage, "Hm.")
    edited, last = check(stage)
    assert right < edited < last
    chat.transcript.sibling_requested.emit(edited, -1)
    until(lambda: stage.state.messages[0].id == asked)
    assert check(stage) == [asked, right]
    chat.transcript.delete_requested.emit(asked)
    check(stage)
    controller.deletions.undo()
    assert check(stage) == [asked, right]
    shown = stage.state.current
    assert shown is not None
    controller.new_conversation()
    controller.send("Another")
    answer(stage, "Yes.")
    check(stage)
    other = stage.state.current
    assert other is not None
    assert shown < other
    stage.window.sidebar.delete_requested.emit([other])
    stage.wait_until_idle()
    assert [each.id for each in stage.state.trash] == [other]
    stage.window.sidebar.opened.emit(shown)
    controller.conversations.rename(shown, "Renamed")
    assert check(stage) == [asked, right]
    stage.close()
    stage = Stage(tmp_path, settings=controller.settings)
    stage.ready(MODEL)
    until(lambda: stage.state.current == shown)
    assert check(stage) == [asked, right]
    assert [each.id for each in stage.state.trash] == [other]
    stage.controller.send("Still there?")
    answer(stage, "Yes.")
    assert check(stage)[:2] == [asked, right]
    assert stage.state.messages[-2].id > other
    stage.close()
    store = Store.open(tmp_path / "conversations.sqlite")
    assert {asked, first, second, left, right, edited, last} < all_messages(store).keys()
    store.close()


def test_chat_whose_write_is_still_queued_stays_in_the_list(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ready(MODEL)
    full = [True]

    def fail(store: Store) -> None:
        if full[0]:
            raise StoreError("The disk is full.", "Free some space.", temporary=True)

    stage.store_queue.write(fail)
    until(lambda: "store" in stage.state.notices)
    stage.controller.send("Why?")
    answer(stage, "Because.")
    shown = stage.state.current
    stage.controller.conversations.read()
    stage.wait_until_idle()
    assert [each.id for each in stage.state.conversations] == [shown]
    assert stage.controller.settings.last_conversation == shown
    stage.controller.deletions.delete([shown or 0])
    stage.controller.conversations.read()
    stage.wait_until_idle()
    assert stage.state.conversations == ()
    full[0] = False
    stage.controller.deletions.undo()
    until(lambda: "store" not in stage.state.notices)
    assert len(check(stage)) == 2


def test_a_row_that_is_written_twice_is_there_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "conversations.sqlite")
    conversation, question, left, right = (new_id() for _ in range(4))
    streaming = MessageState.STREAMING
    for _ in range(2):  # the first write was saved, and then reported an error
        store.create_conversation("Sky", id=conversation)
        asked = store.add_message(conversation, None, Role.USER, "Why?", id=question)
        both = store.add_comparison(
            conversation, question, "Small", (AnswerDetails(), AnswerDetails()), ids=(left, right)
        )
    store.append_text(left, "Because")
    again = store.add_message(conversation, question, Role.ASSISTANT, "", streaming, id=left)
    assert again.text == "Because"
    assert [each.id for each in store.branch(conversation)] == [question, left]
    assert (asked.siblings, both[0].siblings, both[1].compared) == (1, 2, left)
    assert [each.id for each in store.conversations("why")] == [conversation]
    store.close()


def test_new_ids_follow_those_of_a_store_written_with_a_later_clock(tmp_path: Path) -> None:
    hour = 3_600_000 << 12
    ahead = new_id() + hour
    store = Store.open(tmp_path / "conversations.sqlite")
    store.create_conversation("Tomorrow", id=ahead)
    store.add_message(ahead, None, Role.USER, "Why?", id=ahead + 1)
    store.close()
    store = Store.open(tmp_path / "conversations.sqlite")
    added = store.add_message(ahead, ahead + 1, Role.ASSISTANT, "Because.")
    assert added.id > ahead + 1
    assert [each.id for each in store.branch(ahead)] == [ahead + 1, added.id]
    store.close()
