"""Titles by the model: when they are asked for, what they never replace, and how they are cleaned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.chat_list.titles import cleaned
from app.domain.chat import Preset
from app.settings.table import Settings
from engine import Chat, FinishReason, Load, Priority, Role
from fakes import MODEL, Cancel
from stage import Stage, flush

QUESTION = "Hello! Can you tell me why the sky is blue?"
AUTOMATIC = "Why the sky is blue?"


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, settings=Settings(model_titles="on"))
    made.ready(MODEL)
    yield made
    made.close()


def ask(stage: Stage, text: str = QUESTION) -> Chat:
    """Send a message; returns the request for its answer."""
    assert stage.controller.send(text)
    return stage.engine.last_generate


def answer(stage: Stage, text: str = "Light is scattered.") -> None:
    stage.engine.write(text)
    stage.engine.finish()
    stage.drain()


def titling(stage: Stage) -> Chat | None:
    """The request for a title in progress."""
    asked = [
        each
        for each in stage.engine.unfinished
        if stage.engine.priorities[each.request] is Priority.BACKGROUND
    ]
    return asked[-1] if asked and stage.state.titled is not None else None


def title(stage: Stage) -> str:
    return stage.state.title(stage.state.current)


def test_the_first_answer_is_followed_by_a_title(stage: Stage) -> None:
    question = ask(stage)
    assert titling(stage) is None
    answer(stage)
    assert title(stage) == AUTOMATIC
    asked = titling(stage)
    assert asked is not None
    assert asked.turns[: len(question.turns)] == question.turns  # the cached context of the chat
    assert [turn.role for turn in asked.turns[-3:]] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert asked.conversation == ""
    assert asked.thinking is False
    line = stage.window.chat.status_line
    assert not line.titling.isHidden()
    stage.engine.write("**Title:** “Colour of the sky”.\n\nShall I go on?")
    stage.engine.finish()
    stage.drain()
    assert title(stage) == "Colour of the sky"
    assert line.titling.isHidden()
    assert line.cancel_title.isHidden()
    assert [message.text for message in stage.state.messages] == [QUESTION, "Light is scattered."]
    stage.wait_until_idle()
    found: list[str] = []
    stage.store_queue.read(lambda store: store.conversations()[0].title, found.append)
    stage.wait_until_idle()
    assert found == ["Colour of the sky"]


def test_without_the_setting_nothing_is_asked(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    ask(stage)
    answer(stage)
    assert stage.engine.unfinished == []
    assert title(stage) == AUTOMATIC
    stage.close()


def test_later_answers_ask_for_no_title(stage: Stage) -> None:
    ask(stage)
    answer(stage)
    answer(stage, "Blue sky")
    for _ in range(2):
        ask(stage, "And red?")
        answer(stage)
        assert titling(stage) is None
    assert title(stage) == "Blue sky"


def test_a_typed_title_stays(stage: Stage) -> None:
    ask(stage)
    stage.controller.conversations.rename(stage.state.current or 0, "Mine")
    answer(stage)
    assert titling(stage) is None
    stage.controller.new_conversation()
    ask(stage)
    answer(stage)
    stage.controller.conversations.rename(stage.state.current or 0, "Mine too")
    answer(stage, "Blue sky")
    assert [each.title for each in stage.state.conversations] == ["Mine too", "Mine"]


def test_the_next_message_does_not_wait_for_a_title(stage: Stage) -> None:
    ask(stage)
    answer(stage)
    asked = titling(stage)
    assert asked is not None
    stage.engine.write("Blu")
    stage.drain()
    again = ask(stage, "And red?")
    cancel = stage.engine.last(Cancel)
    assert cancel.request == asked.request
    assert again.request > asked.request
    stage.engine.finish(FinishReason.CANCELLED, request=asked.request)
    stage.drain()
    assert stage.state.titled is None
    assert title(stage) == AUTOMATIC
    answer(stage)
    assert titling(stage) is None, "the chat has two questions"


def test_a_waiting_message_is_sent_before_the_title(stage: Stage) -> None:
    ask(stage)
    assert stage.controller.send("And red?")
    answer(stage)
    assert titling(stage) is None
    assert stage.engine.last_generate.turns[-1].text == "And red?"


def test_an_answer_of_another_chat_comes_first(stage: Stage) -> None:
    ask(stage)
    first = stage.state.current
    answer(stage)
    asked = titling(stage)
    assert asked is not None
    stage.controller.new_conversation()
    other = ask(stage, "Name a red fruit.")
    stage.engine.finish(FinishReason.CANCELLED, request=asked.request)
    stage.engine.write("Cherry", request=other.request)
    stage.engine.finish(request=other.request)
    stage.drain()
    titles: list[int | None] = []
    for words in ("Blue sky", "Red fruit"):
        titles.append(stage.state.titled)
        answer(stage, words)
    assert titles == [first, stage.state.current]
    assert [each.title for each in stage.state.conversations] == ["Red fruit", "Blue sky"]


def test_cancel_keeps_the_automatic_title(stage: Stage) -> None:
    ask(stage)
    answer(stage)
    asked = titling(stage)
    assert asked is not None
    stage.engine.write("Blue")
    stage.drain()
    stage.window.chat.status_line.cancel_title.click()
    assert stage.engine.last(Cancel).request == asked.request
    assert stage.state.titled is None
    stage.engine.finish(FinishReason.CANCELLED, request=asked.request)
    stage.drain()
    assert title(stage) == AUTOMATIC
    assert titling(stage) is None


@pytest.mark.usefixtures("caplog")
def test_a_failed_title_says_nothing(stage: Stage) -> None:
    ask(stage)
    answer(stage)
    stage.engine.fail("The chat is full.", "Begin another.", full=True)
    stage.drain()
    assert stage.state.titled is None
    assert not stage.state.notices
    assert title(stage) == AUTOMATIC


def test_a_stopped_answer_is_not_titled(stage: Stage) -> None:
    ask(stage)
    stage.engine.write("Light")
    stage.drain()
    stage.controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    stage.drain()
    assert titling(stage) is None


def test_a_model_change_cancels_the_title(stage: Stage) -> None:
    ask(stage)
    answer(stage)
    asked = titling(stage)
    assert asked is not None
    stage.controller.load_model(MODEL.with_name("other.gguf"))
    commands = stage.engine.commands
    sent = [each for each in commands if isinstance(each, Cancel | Load)]
    assert Cancel(asked.request) in sent
    assert stage.state.titled is None
    stage.engine.finish(FinishReason.CANCELLED, request=asked.request)
    stage.drain()
    assert title(stage) == AUTOMATIC


def test_a_chat_with_another_model_loads_none_for_its_title(stage: Stage) -> None:
    ask(stage)
    answer(stage)
    chat = stage.state.current
    asked = titling(stage)
    assert asked is not None
    stage.controller.load_model(MODEL.with_name("other.gguf"))
    stage.engine.finish(FinishReason.CANCELLED, request=asked.request)
    stage.drain()
    loads = stage.engine.count(Load)
    stage.engine.finish_load()
    stage.drain()
    assert stage.engine.count(Load) == loads
    model = stage.state.settings(chat).model
    assert (stage.state.titled == chat) == (model == stage.state.model.model)


def test_a_deleted_chat_gets_no_title(stage: Stage) -> None:
    ask(stage)
    answer(stage)
    chat = stage.state.current or 0
    stage.controller.deletions.delete([chat])
    answer(stage, "Blue sky")
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert stage.state.title(chat) == AUTOMATIC


def test_quitting_asks_for_no_title(stage: Stage) -> None:
    ask(stage)
    stage.controller.shut_down()
    answer(stage)
    assert titling(stage) is None


def test_a_chat_with_a_greeting_keeps_the_name_of_its_preset(stage: Stage) -> None:
    stage.controller.presets.save(Preset(1 << 40, "Ada", greeting="Hello!"))
    stage.controller.presets.start(1 << 40)
    ask(stage)
    answer(stage)
    assert titling(stage) is None
    assert title(stage) == "Ada"


def test_the_settings_page_has_the_setting(stage: Stage) -> None:
    stage.window.preferences.open()
    flush()
    stage.controller.change_settings(model_titles="off")
    ask(stage)
    answer(stage)
    assert titling(stage) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Blue Sky", "Blue Sky"),
        ("\n\n  Blue Sky.  \n", "Blue Sky"),
        ('"Why is the sky blue?"', "Why is the sky blue?"),
        ("# **Blue `Sky`**", "Blue `Sky"),
        ("Title: Blue Sky", "Blue Sky"),
        ("Chat title: Blue Sky", "Blue Sky"),
        ("标题：天空为什么是蓝色", "天空为什么是蓝色"),
        ("«ما سبب زرقة السماء؟»", "ما سبب زرقة السماء؟"),
        ("„Der blaue Himmel“", "Der blaue Himmel"),
        ("Sure! Here is a title:\n\n**Blue Sky**\n\nDo you like it?", "Blue Sky"),
        ("<think>\nThe user asks about the sky.\n</think>\n\nBlue Sky", "Blue Sky"),
        ("<think>\nThe user asks about the sky, and", ""),
        ("Sky\u202e and\tsea\x07", "Sky and sea"),
        ("I'm sorry for the confusion.", ""),
        ("Sure, what else?", ""),
        ("The sky is blue since air scatters more of the blue light.", ""),
        ("…", ""),
        ("", ""),
        ("The sky is blue because the molecules of the air scatter short waves more than long ones,"
         " which is named after Lord Rayleigh", ""),
        ("Kraftfahrzeughaftpflichtversicherung und Rechtsschutzversicherungsbedingungen",
         "Kraftfahrzeughaftpflichtversicherung und…"),
    ],
)  # fmt: skip
def test_a_title_is_one_short_line(text: str, expected: str) -> None:
    assert cleaned(text) == expected
    assert len(cleaned(text)) <= 61
