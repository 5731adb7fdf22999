"""Parts of messages in the chat: what the model reads of them, and answers that grow behind them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.chat.requests.prompts import memory_start, turns_of
from app.domain.chat_settings import NO_SETTINGS
from app.domain.message import Message, MessageState
from app.domain.parts import (
    Content,
    ErrorPart,
    FilePart,
    ImagePart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    parts_of,
)
from app.settings.samplers import Thinking
from app.store.store import Store
from app.store.writer import StoreQueue
from engine import FinishReason, ReasoningPart, Role, Turn
from engine import TextPart as TextPiece
from fakes import MODEL
from stage import Stage, until

USER, ASSISTANT, SYSTEM = Role.USER, Role.ASSISTANT, Role.SYSTEM
LONG = "a pasted line\n" * 40
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Kyoto"}}\n</tool_call>'
WEATHER = (
    ThoughtPart("I ask.", "<think>\n"),
    TextPart("\n\nLet me look.\n"),
    ToolCallPart("weather", '{"city": "Kyoto"}', source=CALL),
    ToolResultPart("weather", "rain"),
)


def said(number: int, role: Role, content: Content) -> Message:
    parts = parts_of(role, content)
    return Message(
        number, 1, None, role, parts, MessageState.COMPLETE, 0.0, "", "", 0, 0, 0.0, 1, 1
    )


def test_thoughts_and_white_space_are_read_as_they_were_written() -> None:
    text = "\n <think>\nHm.\n</think>\n\n Yes.\n"
    assert turns_of([said(1, ASSISTANT, text)], "") == (Turn(ASSISTANT, text),)


def test_attached_texts_come_before_the_question() -> None:
    files = (FilePart("a.txt", "first"), FilePart("", "second"), TextPart("What is it?"))
    (turn,) = turns_of([said(1, USER, files)], "")
    own = '<document name="a.txt">\nfirst\n</document>'
    assert turn == Turn(USER, f"{own}\n\nsecond\n\nWhat is it?")


def test_errors_are_not_read_and_images_are_named() -> None:
    branch = [
        said(1, USER, (ImagePart("tree.png"), TextPart("What is it?"))),
        said(2, ASSISTANT, (ErrorPart(message="It failed."),)),
        said(3, USER, "Again"),
    ]
    assert turns_of(branch, "Be brief.") == (
        Turn(SYSTEM, "Be brief."),
        Turn(USER, '\n[picture "tree.png", which you cannot see]\nWhat is it?\n\nAgain'),
    )


def test_results_of_tools_are_turns_that_the_model_reads() -> None:
    lost = ToolResultPart("time", "noon")  # without a call, as imported chats have some
    two = (*WEATHER, lost, TextPart("Take an umbrella."))
    branch = [said(1, USER, "And the weather?"), said(2, ASSISTANT, two), said(3, USER, "Thanks")]
    asked, called, given, other, answered, thanks = turns_of(branch, "")
    assert (asked, answered) == (
        Turn(USER, "And the weather?"),
        Turn(ASSISTANT, "Take an umbrella."),
    )
    assert thanks == Turn(USER, "Thanks")
    assert called == Turn(
        ASSISTANT, (ReasoningPart("I ask."), TextPiece("\n\nLet me look.\n"), *called.calls)
    )
    [call] = called.calls
    assert given.role is Role.TOOL
    [result] = given.results
    assert (result.call_id, result.name) == (call.id, call.name)
    assert "rain" in result.text
    assert other.role is USER
    assert other.text.startswith("<tool_response>\n<result-")
    assert "noon" in other.text
    starts = [memory_start(branch, dropped) for dropped in range(7)]
    assert starts == [None, 2, 2, 2, 2, 3, None]


def test_a_result_is_made_readable_once_for_all_prompts() -> None:
    """It takes milliseconds for a long one, and each prompt of a chat has all of them."""
    branch = [said(1, USER, "And the weather?"), said(2, ASSISTANT, WEATHER)]
    first, second = (turns_of(branch, "")[-1].results[0].text for _ in range(2))
    assert first is second


def test_an_answer_that_ends_with_a_result_is_to_be_answered() -> None:
    branch = [said(1, USER, "And the weather?"), said(2, ASSISTANT, WEATHER)]
    assert turns_of(branch, "")[-1].role is Role.TOOL


def test_pasted_text_is_a_part_and_is_read_as_if_it_were_typed(stage: Stage) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    composer.editor.long_pasted.emit(f"\n{LONG}")
    composer.insert("What is it?  ")
    composer.editor.enter_pressed.emit()
    stage.wait_until_idle()
    read = f"{LONG}\n\nWhat is it?  "
    assert stage.engine.last_generate.turns == (Turn(USER, read),)
    own = stage.state.messages[0]
    assert own.parts == (FilePart("", LONG), TextPart("What is it?  "))
    stage.engine.write("Lines.")
    stage.engine.finish()
    stage.wait_until_idle()
    assert stage.state.conversations[0].title == "What is it?"
    assert composer.text() == ""


def test_pasted_text_is_kept_by_a_restart(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    assert stage.controller.send((FilePart("", LONG), TextPart("What is it?")))
    stage.engine.write("<think>Lines.</think>Many")
    stage.engine.finish(FinishReason.CANCELLED)
    stage.wait_until_idle()
    held = stage.state.messages
    stage.store_queue.close()
    store = Store.open(stage.store_queue.path)
    now = store.branch(held[0].conversation)
    store.close()
    assert [m.parts for m in now] == [m.parts for m in held]
    assert now[1].parts == (ThoughtPart("Lines."), TextPart("Many"))


def begin_answer(stage: Stage) -> Message:
    """A stopped answer that called a tool, opened in the window."""
    store_queue: StoreQueue = stage.store_queue

    def write(store: Store) -> int:
        chat = store.create_conversation("Weather").id
        own = store.add_message(chat, None, USER, "And the weather?").id
        answer = store.add_message(chat, own, ASSISTANT, WEATHER, MessageState.STREAMING).id
        store.append_text(answer, "<think>Ra")
        store.finish(answer, MessageState.STOPPED, stop="user")
        return chat

    made: list[int] = []
    store_queue.read(write, made.append)
    until(lambda: bool(made))
    stage.controller.open_conversation(made[0])
    until(lambda: bool(stage.state.messages))
    return stage.state.messages[-1]


def test_an_answer_is_continued_behind_the_result_of_a_tool(stage: Stage) -> None:
    stage.ready(MODEL)
    begun = begin_answer(stage)
    assert begun.parts == (*WEATHER, ThoughtPart("Ra", ends=""))
    stage.controller.continue_answer(begun.id)
    stage.wait_until_idle()
    assert stage.engine.last_generate.turns[-1] == Turn(ASSISTANT, "<think>Ra")
    stage.engine.think("in.")
    stage.engine.write("Take")
    stage.engine.write(" an umbrella.")
    stage.drain()
    done = (*WEATHER, ThoughtPart("Rain."), TextPart("Take an umbrella."))
    assert stage.state.messages[-1].parts == done
    stage.engine.fail("It broke.", "Try again.")
    stage.wait_until_idle()
    failed = stage.state.messages[-1]
    assert failed.parts[:-1] == done
    assert failed.error is not None
    found: list[list[Message]] = []
    stage.store_queue.read(lambda store: store.branch(begun.conversation), found.append)
    until(lambda: bool(found))
    assert found[0][-1].parts == failed.parts


def test_an_answer_that_is_continued_keeps_the_time_of_its_thoughts(stage: Stage) -> None:
    stage.ready(MODEL)
    changed = replace(NO_SETTINGS, thinking=Thinking.BUDGET, thinking_budget=50)
    stage.controller.chat_settings.change_shown(changed)
    stage.controller.send("Why?")
    stage.wait_until_idle()
    stage.engine.write("<think>Hm")
    stage.engine.finish(FinishReason.CANCELLED, thought_tokens=20, thought_seconds=3.0)
    stage.wait_until_idle()
    stage.controller.continue_answer(stage.state.messages[-1].id)
    stage.wait_until_idle()
    assert stage.engine.last_generate.thinking_budget == 50
    stage.engine.write(", so</think>Because")
    stage.engine.finish(
        FinishReason.CANCELLED, thought_tokens=50, thought_seconds=2.5, thought_budget_reached=True
    )
    stage.wait_until_idle()
    stage.controller.continue_answer(stage.state.messages[-1].id)
    stage.wait_until_idle()
    stage.engine.write(".")
    stage.engine.finish(thought_tokens=50)  # all of the answer's thoughts are before
    stage.wait_until_idle()
    made = stage.state.messages[-1].details
    assert made is not None
    assert (made.thought_tokens, made.thought_seconds, made.thought_budget) == (50, 5.5, 50)
