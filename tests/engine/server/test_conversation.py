"""Conversations: how messages of any API become turns."""

from __future__ import annotations

import json

import pytest

from engine.messages import ReasoningPart, Role, TextPart, ToolCall, ToolResult, Turn
from engine.server.carried import pack, unpack
from engine.server.conversation import (
    Conversation,
    call_arguments,
    content,
    content_text,
    part_text,
    result,
)
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.pictures import Pictures


def test_parts_of_an_answer_are_one_turn_and_results_turns_of_their_own() -> None:
    made = Conversation()
    made.user("What is the weather?")
    made.assistant(ReasoningPart("I look."))
    made.assistant(TextPart("One moment."))
    made.assistant(ToolCall("a", "weather", "{}"))
    made.assistant(ToolCall("b", "time", "{}"))
    made.result("b", "noon")
    made.result("a", "sun")
    parts = (
        ReasoningPart("I look."),
        TextPart("One moment."),
        ToolCall("a", "weather", "{}"),
        ToolCall("b", "time", "{}"),
    )
    assert made.turns() == (
        Turn(Role.USER, "What is the weather?"),
        Turn(Role.ASSISTANT, parts),
        Turn(Role.TOOL, (ToolResult("b", "time", "noon"),)),
        Turn(Role.TOOL, (ToolResult("a", "weather", "sun"),)),
    )


def test_a_result_without_an_id_belongs_to_the_first_call_of_its_name() -> None:
    made = Conversation()
    for id, name in (("1", "f"), ("2", "g"), ("3", "f")):
        made.assistant(ToolCall(id, name, "{}"))
    for name in ("g", "f", ""):
        made.result("", name, name)
    found = [turn.results[0].call_id for turn in made.turns()[1:]]
    assert found == ["2", "1", "3"]


def test_a_result_without_a_call_is_the_users() -> None:
    made = Conversation()
    made.user("Go on.")
    made.result("", "Win.", "goal")
    made.result("left out", "sun")
    assert made.turns() == (Turn(Role.USER, "Go on.\n\ngoal: Win.\n\nsun"),)


def test_tens_of_thousands_of_messages_are_read_in_one_pass() -> None:
    """Joined one by one they took minutes, in which the server answered nobody."""
    count, made = 20_000, Conversation()
    for _ in range(count):
        made.user("x")
    for number in range(count):
        made.assistant(TextPart("y"))
        made.assistant(ToolCall(str(number), "f", "{}"))
    for number in reversed(range(count)):
        made.result(str(number), "z")
    question, answer, *results = made.turns()
    assert question == Turn(Role.USER, "\n\n".join("x" * count))
    assert len(answer.content) == 2 * count
    assert [turn.results[0].call_id for turn in results[:2]] == ["19999", "19998"]
    assert len(results) == count


def test_instructions_between_messages_become_the_users() -> None:
    made = Conversation()
    made.system("x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;")
    made.system("Be brief.")
    made.user("hello")
    made.system("The file changed.")
    made.user("Go on.")
    assert made.turns() == (
        Turn(Role.SYSTEM, "Be brief."),
        Turn(Role.USER, "hello\n\nThe file changed.\n\nGo on."),
    )


def test_a_plain_answer_is_a_text() -> None:
    made = Conversation()
    made.assistant(TextPart("One."))
    made.assistant(TextPart("Two."))
    assert made.turns() == (Turn(Role.ASSISTANT, "One.\n\nTwo."),)


def test_parts_without_text_are_none() -> None:
    made = Conversation()
    made.user("hello")
    made.assistant(ReasoningPart(""))
    made.assistant(TextPart(""))
    made.user("Go on.")
    assert made.turns() == (Turn(Role.USER, "hello\n\nGo on."),)


def test_the_texts_of_a_list_of_parts_are_joined() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    assert content_text(Fields({"content": parts})) == "a\n\nb"
    assert content_text(Fields({"content": "a"})) == "a"
    assert content_text(Fields({})) == ""


def test_what_is_neither_text_nor_picture_is_refused_but_not_in_the_result_of_a_tool() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}]
    fields, pictures = Fields({"content": parts}), Pictures()
    for read in (content_text, lambda fields: content(fields, pictures)):
        with pytest.raises(ApiError, match=r"`content\[1\]\.type` is of type 'input_audio'"):
            read(fields)
    noted = "a\n\n[input_audio, which this model cannot read]"
    assert result(fields, pictures) == noted
    other = {"content": [{"type": "tool_reference", "tool_name": "x"}, {"type": "text"}]}
    noted = "[tool_reference, which this model cannot read]\n\n"
    assert result(Fields(other), pictures) == noted
    with pytest.raises(ApiError, match=r"`content\[0\]\.text` must be a string"):
        result(Fields({"content": [{"type": "text", "text": 3}]}), pictures)
    with pytest.raises(ApiError, match="is a picture"):
        part_text(Fields({"type": "image"}))


@pytest.mark.parametrize("text", ["", "{}", '{"a": [1]}', '{"a": ', "[1]", "[" * 9999, "null"])
def test_arguments_of_a_call_are_an_object_whatever_was_written(text: str) -> None:
    assert isinstance(json.loads(call_arguments(text)), dict)


@pytest.mark.parametrize("text", ["", "thoughts", "Grüße 👋\n" * 1000])
def test_a_packed_text_comes_back(text: str) -> None:
    assert unpack(pack(text)) == text
    assert pack(text).isascii()


@pytest.mark.parametrize(
    "word", ["", "gAAAAABpM0Yj", "tkn1.!", "tkn1.é", "tkn1._w==", pack("a")[:-1]]
)
def test_other_words_are_not_unpacked(word: str) -> None:
    assert unpack(word) is None
