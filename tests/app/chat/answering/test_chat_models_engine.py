"""Two models in the whole window, with the real engine: answered in turn, compared, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
from app.domain.generation_settings import GenerationSettings
from app.domain.message import Message, MessageState
from app.domain.model_ref import Local
from app.settings.table import Settings
from real_stage import RealStage
from stage import Stage, until

QUESTION = "the quick brown fox jumps over the lazy dog"
SETTINGS = Settings(temperature=0.0, max_tokens=24, context=512, threads=1)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two models that answer otherwise."""
    return (
        tiny.write(tmp_path / "small.gguf", context=512, seed=1),
        tiny.write(tmp_path / "other.gguf", context=512, seed=2),
    )


@pytest.fixture
def stage(qtbot: QtBot, files: tuple[Path, Path], tmp_path: Path) -> Iterator[RealStage]:
    made = RealStage(tmp_path, settings=SETTINGS)
    made.start(files[0])
    until(lambda: made.state.model.loaded is not None)
    yield made
    made.close()


def ended(stage: Stage, chat: int) -> Message:
    until(lambda: chat not in stage.state.busy_conversations)
    stage.wait_until_idle()
    return stage.state.branches[chat][-1]


def ask(stage: Stage, chat: int | None) -> int:
    """Ask in a chat, None: a new one; returns its id at once."""
    if chat is None:
        stage.controller.new_conversation()
    else:
        stage.controller.open_conversation(chat)
    assert stage.controller.send(QUESTION)
    assert stage.state.current is not None
    return stage.state.current


def test_two_chats_are_answered_at_once_each_by_its_model(
    stage: RealStage, files: tuple[Path, Path]
) -> None:
    first = ask(stage, None)
    by_first = ended(stage, first).text
    stage.controller.new_conversation()
    stage.controller.load_model(files[1])
    second = ask(stage, None)
    by_second = ended(stage, second).text
    assert by_first != by_second
    for chat in (first, second):  # again, from the beginning
        stage.controller.open_conversation(chat)
        stage.controller.edit(stage.state.messages[0].id, QUESTION)
    assert stage.state.busy_conversations == {first, second}
    answers = [ended(stage, chat) for chat in (first, second)]
    assert [answer.text for answer in answers] == [by_first, by_second]
    assert [answer.model for answer in answers] == ["small", "other"]
    assert [stage.state.settings(chat).model for chat in (first, second)] == [
        Local(file) for file in files
    ]


def test_two_models_are_compared_and_the_chat_keeps_its_own(
    stage: RealStage, files: tuple[Path, Path]
) -> None:
    chat = ask(stage, None)
    question = ended(stage, chat)
    other = GenerationSettings(model=Local(files[1]))
    stage.controller.compare(question.id, GenerationSettings(), other)
    left = ended(stage, chat)
    right = stage.state.compared[left.id]
    assert {left.state, right.state} <= {MessageState.COMPLETE, MessageState.STOPPED}
    assert left.text == question.text != right.text
    assert [words for _, words in stage.window.transcript.message_layout.headers()] == [
        "small",
        "other",
    ]
    assert stage.state.model.path == files[1]
    stage.controller.keep(left.id)
    ask(stage, chat)
    assert ended(stage, chat).model == "small"
    assert stage.state.settings(chat).model == Local(files[0])


def test_damaged_model_fails_its_answer_and_the_other_chat_goes_on(
    stage: RealStage, files: tuple[Path, Path]
) -> None:
    first = ask(stage, None)
    ended(stage, first)
    stage.controller.new_conversation()
    stage.controller.load_model(files[1])
    second = ask(stage, None)
    ended(stage, second)
    files[0].write_bytes(files[0].read_bytes()[:200])
    ask(stage, first)
    ask(stage, second)
    answers = [ended(stage, chat) for chat in (first, second)]
    assert [answer.state is MessageState.FAILED for answer in answers] == [True, False]
    assert stage.state.branches[second][-1].model == "other"
