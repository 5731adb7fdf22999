"""Two conversations answered at once in the whole window, with the real engine on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
from app.chat.controller import Controller
from app.domain.message import Message, MessageState
from app.settings.table import Settings
from real_stage import RealStage
from stage import Stage, until

QUESTIONS = ("the quick brown fox jumps over", "hello there, how are you today?")
SETTINGS = Settings(temperature=0.0, max_tokens=120, context=1024, threads=1)


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    made = RealStage(tmp_path, settings=SETTINGS)
    made.start(tiny.write(tmp_path / "tiny.gguf", context=1024))
    until(lambda: made.state.model.loaded is not None)
    yield made
    made.close()


def ask_both(controller: Controller) -> list[int]:
    """Ask a question in each of two new chats at once; returns the chats."""
    chats: list[int] = []
    for question in QUESTIONS:
        controller.new_conversation()
        assert controller.send(question)
        assert controller.state.current is not None
        chats.append(controller.state.current)
    assert controller.state.busy_conversations == set(chats)
    return chats


def answers(stage: Stage, chats: list[int]) -> list[Message]:
    return [stage.state.branches[number][-1] for number in chats]


def stored_texts(stage: Stage, chats: list[int]) -> list[str]:
    """The text of each chat's answer, read from the database file."""
    found: list[str] = []
    for chat in chats:
        stage.store_queue.read(lambda store, chat=chat: store.branch(chat)[-1].text, found.append)
    until(lambda: len(found) == len(chats))
    return found


def test_two_answers_at_once_are_those_of_each_alone(stage: Stage) -> None:
    alone: list[str] = []
    for question in QUESTIONS:
        stage.controller.new_conversation()
        stage.controller.send(question)
        until(lambda: not stage.state.busy)
        alone.append(stage.state.messages[-1].text)
    assert all(alone)
    assert alone[0] != alone[1]
    chats = ask_both(stage.controller)
    until(lambda: not stage.state.busy_conversations)
    stage.wait_until_idle()
    assert [message.text for message in answers(stage, chats)] == alone
    assert stored_texts(stage, chats) == alone
    for message in answers(stage, chats):
        assert message.state in (MessageState.COMPLETE, MessageState.STOPPED)
        assert message.generated_tokens > 0
        assert message.details is not None


def test_one_of_two_answers_is_stopped_and_the_other_goes_on(stage: Stage) -> None:
    stage.controller.change_settings(max_tokens=900)
    chats = ask_both(stage.controller)
    stage.controller.stop_in(chats[1])
    until(lambda: not stage.state.busy_conversations)
    stage.wait_until_idle()
    one, two = answers(stage, chats)
    assert two.state is MessageState.STOPPED
    assert two.generated_tokens < one.generated_tokens
    assert stored_texts(stage, chats) == [one.text, two.text]


def test_quitting_while_both_answer_ends_both(qtbot: QtBot, tmp_path: Path) -> None:
    stage = RealStage(tmp_path, settings=SETTINGS)
    stage.start(tiny.write(tmp_path / "tiny.gguf", context=1024))
    until(lambda: stage.state.model.loaded is not None)
    stage.controller.change_settings(max_tokens=900)
    chats = ask_both(stage.controller)
    until(lambda: bool(stage.state.writing_conversations))
    stage.close()
    ended = answers(stage, chats)
    assert {message.state for message in ended} <= {MessageState.INTERRUPTED, MessageState.COMPLETE}
    again = RealStage(tmp_path, settings=SETTINGS)
    again.start()
    for conversation in again.state.conversations:
        again.controller.open_conversation(conversation.id)
        again.wait_until_idle()
        place = QUESTIONS.index(again.state.messages[0].text)
        assert again.state.messages[-1].text == ended[place].text
        assert again.state.messages[-1].state is ended[place].state
    again.close()
