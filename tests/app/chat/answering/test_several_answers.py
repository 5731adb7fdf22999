"""Several conversations are answered at once: their events may be interleaved in any way."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from adapter_stage import accept
from app.domain.message import Message, MessageState, StopReason
from engine import Chat, FinishReason, Role, Save, SetAdapters
from fakes import MODEL, Cancel
from stage import Stage, until


class Both:
    """Two conversations that are answered at once; the second is shown."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.chats: list[int] = []
        for text in ("First", "Second"):
            stage.controller.new_conversation()
            assert stage.controller.send(text)
            assert stage.state.current is not None
            self.chats.append(stage.state.current)
        self.one, self.two = (each.request for each in stage.engine.unfinished)

    def write(self, one: str = "", two: str = "") -> None:
        """Stream words of both answers in turn."""
        texts = {self.one: one, self.two: two}
        self.stage.engine.interleave({number: text for number, text in texts.items() if text})
        self.stage.drain()

    def answer(self, place: int) -> Message:
        return self.stage.state.branches[self.chats[place]][-1]

    def stored(self, place: int) -> Message:
        """The last message of a conversation, read from the database file."""
        found: list[Message] = []
        number, store_queue = self.chats[place], self.stage.store_queue
        store_queue.read(lambda store: store.branch(number)[-1], found.append)
        until(lambda: bool(found))
        return found[0]


@pytest.fixture
def both(stage: Stage) -> Both:
    stage.ready(MODEL)
    return Both(stage)


def test_interleaved_events_reach_their_own_answers(both: Both) -> None:
    stage = both.stage
    both.write("Because of the", "It is green")
    assert stage.state.writing_conversations == set(both.chats)
    assert (both.answer(0).text, both.answer(1).text) == ("Because of the", "It is green")
    both.write(" air.", " by itself.")
    stage.engine.finish(request=both.two, tokens=6)
    stage.engine.write(" Yes.", request=both.one)
    stage.engine.finish(request=both.one, tokens=9)
    stage.wait_until_idle()
    for place, text, tokens in (
        (0, "Because of the air. Yes.", 9),
        (1, "It is green by itself.", 6),
    ):
        for message in (both.answer(place), both.stored(place)):
            assert (message.text, message.state) == (text, MessageState.COMPLETE)
            assert message.generated_tokens == tokens
    assert not stage.state.busy_conversations


def test_each_stream_is_live_when_its_conversation_is_shown(both: Both) -> None:
    stage, transcript = both.stage, both.stage.window.transcript
    both.write("Because", "It")
    for place, text in ((0, "Because of"), (1, "It is"), (0, "Because of the")):
        stage.controller.open_conversation(both.chats[place])
        assert stage.window.composer.busy
        shown = both.answer(place).id
        one, two = (text.split()[-1], "") if place == 0 else ("", text.split()[-1])
        both.write(" " + one if one else "", " " + two if two else "")
        view = next(view for view in transcript.stack.views if view.message.id == shown)
        until(lambda view=view, text=text: view.message.text == text)  # it is throttled


def test_stop_ends_the_shown_answer_and_the_other_goes_on(both: Both) -> None:
    stage = both.stage
    both.write("Because", "It is")
    stage.window.composer.stopped.emit()
    assert stage.engine.last(Cancel) == Cancel(both.two)
    assert stage.engine.count(Cancel) == 1
    stage.engine.finish(FinishReason.CANCELLED, request=both.two)
    both.write(" of the air.")
    assert not stage.window.composer.busy
    assert stage.state.busy_conversations == {both.chats[0]}
    stage.engine.finish(request=both.one)
    stage.wait_until_idle()
    assert (both.stored(0).text, both.stored(0).state) == (
        "Because of the air.",
        MessageState.COMPLETE,
    )
    assert (both.stored(1).text, both.stored(1).state) == ("It is", MessageState.STOPPED)


def test_stopped_answer_that_has_not_started_ends_at_once(both: Both) -> None:
    stage = both.stage
    both.write("Because")
    until(lambda: both.answer(1).id in stage.state.waiting)
    stage.controller.stop()
    assert stage.engine.last(Cancel) == Cancel(both.two)
    assert (both.answer(1).state, both.answer(1).stop) == (MessageState.STOPPED, StopReason.USER)
    assert stage.state.waiting == {}
    assert stage.controller.send("Again"), "the conversation takes another message at once"
    # It had just started: what still comes of it belongs to no answer.
    stage.engine.write("Too late", request=both.two)
    stage.engine.finish(FinishReason.CANCELLED, request=both.two)
    stage.wait_until_idle()
    texts = [message.text for message in stage.state.messages]
    assert texts == ["Second", "", "Again", ""]


def test_failure_of_a_stopped_answer_is_not_taken_for_that_of_a_load(both: Both) -> None:
    stage = both.stage
    both.write("Because")
    stage.controller.stop()
    stage.engine.fail("It failed.", "Try again.", request=both.two)
    stage.drain()
    assert stage.state.notices == {}
    assert stage.state.busy_conversations == {both.chats[0]}


def test_failure_of_one_answer_leaves_the_other_untouched(both: Both) -> None:
    stage = both.stage
    both.write("Because", "It is")
    stage.engine.fail("The memory of this machine ran out.", "Close programs.", request=both.one)
    both.write("", " green.")
    stage.engine.finish(request=both.two)
    stage.wait_until_idle()
    assert (both.stored(0).text, both.stored(0).state) == ("Because", MessageState.FAILED)
    assert (both.stored(1).text, both.stored(1).state) == ("It is green.", MessageState.COMPLETE)


@pytest.mark.parametrize("place", [0, 1])
def test_deleting_a_conversation_stops_only_its_answer(both: Both, place: int) -> None:
    stage, other = both.stage, 1 - place
    requests = (both.one, both.two)
    both.write("Because", "It is")
    stage.controller.deletions.delete([both.chats[place]])
    cancelled = {each.request for each in stage.engine.commands if isinstance(each, Cancel)}
    saves = {each.request for each in stage.engine.commands if isinstance(each, Save)}
    assert cancelled - saves == {requests[place]}
    stage.engine.finish(FinishReason.CANCELLED, request=requests[place])
    stage.engine.write(" more.", request=requests[other])
    stage.engine.finish(request=requests[other])
    stage.wait_until_idle()
    assert both.stored(other).state is MessageState.COMPLETE
    assert both.stored(other).text.endswith(" more.")
    assert [each.id for each in stage.state.conversations] == [both.chats[other]]
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert both.stored(place).state is MessageState.STOPPED


def test_requested_save_of_a_deleted_conversation_is_cancelled(both: Both) -> None:
    stage = both.stage
    both.write("Because")
    stage.engine.finish(request=both.one)
    stage.wait_until_idle()
    stage.controller.open_conversation(both.chats[0])
    stage.controller.send("And then?")  # saves the context of the second, which waits
    saves = [each for each in stage.engine.commands if isinstance(each, Save)]
    (save,) = [each for each in saves if each.conversation == str(both.chats[1])]
    stage.controller.deletions.delete([both.chats[1]])
    cancelled = {each.request for each in stage.engine.commands if isinstance(each, Cancel)}
    assert cancelled == {save.request, both.two}


def test_context_of_an_answer_that_never_started_is_not_saved(both: Both) -> None:
    stage = both.stage
    both.write("Because")
    stage.engine.finish(request=both.one)
    stage.wait_until_idle()
    stage.controller.stop()
    commands = len(stage.engine.commands)
    stage.controller.open_conversation(both.chats[0])
    stage.wait_until_idle()
    saved = [each for each in stage.engine.commands[commands:] if isinstance(each, Save)]
    assert saved == []


def test_quitting_while_two_answer_keeps_both_texts(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    both = Both(stage)
    both.write("Because of", "It is")
    stage.wait_until_idle()
    stage.controller.shut_down()
    cancelled = {each.request for each in stage.engine.commands if isinstance(each, Cancel)}
    assert {both.one, both.two} <= cancelled
    for request, text in ((both.two, " green"), (both.one, " the")):
        stage.engine.write(text, request=request)
        stage.engine.finish(FinishReason.CANCELLED, request=request)
    stage.close()

    again = Stage(tmp_path)
    again.ready(MODEL)
    found = {}
    for conversation in again.state.conversations:
        again.controller.open_conversation(conversation.id)
        again.wait_until_idle()
        found[conversation.title] = (again.state.messages[-1].text, again.state.messages[-1].state)
    assert found == {
        "First": ("Because of the", MessageState.INTERRUPTED),
        "Second": ("It is green", MessageState.INTERRUPTED),
    }
    assert not again.state.busy_conversations
    again.close()


def test_answers_cut_off_by_a_crash_can_both_be_continued(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    both = Both(stage)
    both.write("Because of", "It is")
    stage.controller.save()
    stage.wait_until_idle()
    stage.engine.commands.clear()
    stage.close()  # no event of the end has come

    again = Stage(tmp_path)
    again.ready(MODEL)
    for text in ("Because of", "It is"):
        title = "First" if text.startswith("Because") else "Second"
        number = next(each.id for each in again.state.conversations if each.title == title)
        again.controller.open_conversation(number)
        again.wait_until_idle()
        last = again.state.messages[-1]
        assert (last.text, last.state) == (text, MessageState.INTERRUPTED)
        again.controller.continue_answer(last.id)
        assert again.engine.last_generate.turns[-1].role is Role.ASSISTANT
    assert again.engine.count(Chat) == 2
    again.close()


def test_answer_with_other_adapters_waits_for_them_and_can_be_stopped(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Plain")
    plain = stage.state.current
    (asked,) = stage.engine.unfinished
    stage.engine.write("Because", request=asked.request)
    stage.drain()
    stage.controller.new_conversation()
    stage.controller.adapters.add(Path("/adapters/pirate.gguf"))
    stage.controller.send("Adapted")
    adapted, waiting = stage.state.current, stage.state.messages[-1].id
    assert plain is not None
    assert adapted is not None
    assert stage.engine.count(Chat) == 1
    assert stage.state.waiting[waiting] == "Waiting for the adapters…"
    stage.controller.open_conversation(plain)  # asks for its own adapters again
    stage.engine.finish(request=asked.request)
    stage.drain()
    answered: set[int] = set()
    while open_ := [
        each
        for each in stage.engine.commands
        if isinstance(each, SetAdapters) and each.request not in answered
    ]:
        assert len(answered) < 10, "the adapters are asked for without end"
        answered.add(open_[0].request)
        accept(stage.engine, open_[0])
        stage.drain()
    assert stage.engine.count(Chat) == 2
    assert stage.state.busy_conversations == {adapted}
    stage.controller.stop_in(adapted)
    assert stage.state.busy_conversations == set()


def test_queued_answer_is_stopped_by_the_button(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Plain")
    stage.controller.new_conversation()
    stage.controller.adapters.add(Path("/adapters/pirate.gguf"))
    stage.controller.send("Adapted")
    assert stage.window.composer.busy
    stage.window.composer.button.click()
    assert stage.state.messages[-1].state is MessageState.STOPPED
    assert not stage.window.composer.busy
    assert len(stage.state.busy_conversations) == 1


def test_text_that_has_come_before_the_stop_is_kept(both: Both) -> None:
    stage = both.stage
    stage.engine.write("It is", request=both.two)  # not handled yet
    stage.controller.stop()
    assert both.answer(1).text == "It is"
    stage.engine.finish(FinishReason.CANCELLED, request=both.two)
    stage.wait_until_idle()
    assert (both.stored(1).text, both.stored(1).state) == ("It is", MessageState.STOPPED)
