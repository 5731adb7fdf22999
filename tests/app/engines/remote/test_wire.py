"""Requests: what of a chat, its samplers, its format and its tools is sent to which server."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.domain.answer_request import AnswerRequest, OfferedTool, PromptMessage
from app.domain.connection import ServerKind
from app.domain.documents import Passage, Reads
from app.domain.parts import (
    ErrorPart,
    FilePart,
    ImagePart,
    KeptFile,
    Part,
    PassagesPart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    prompt_text,
)
from app.engines.remote.faults import ErrorBody
from app.engines.remote.wire import data_url, formats_of, request_body, without
from engine import Constraint, ConstraintKind, Detail, Role
from remote_answers import question

K = ServerKind
PNG = b"\x89PNG\r\n\x1a\n0000"


def read(part: ImagePart) -> bytes:
    return PNG


def body(request: AnswerRequest, kind: ServerKind = K.OPENAI) -> dict[str, Any]:
    return request_body(request, kind, read)


def messages(*turns: tuple[Role, tuple[Part, ...]], kind: ServerKind = K.OPENAI) -> list[Any]:
    asked = question(messages=tuple(PromptMessage(*turn) for turn in turns))
    return body(asked, kind)["messages"]


def user(*parts: Part) -> tuple[Role, tuple[Part, ...]]:
    return Role.USER, parts


def model(*parts: Part) -> tuple[Role, tuple[Part, ...]]:
    return Role.ASSISTANT, parts


def test_messages_of_one_author_are_one_and_none_is_empty() -> None:
    assert messages(
        (Role.SYSTEM, (TextPart("Be brief."),)),
        user(TextPart("One")),
        model(ErrorPart(message="failed")),
        user(TextPart("Two"), FilePart("a.txt", "its text")),
        model(ThoughtPart("Hm"), TextPart("\n\nYes")),
        user(TextPart("  \n")),
        user(TextPart("Three")),
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": 'One\n\nTwo\n\n<document name="a.txt">\nits text\n</document>'},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "Three"},
    ]


def test_passages_are_the_text_that_a_model_here_reads() -> None:
    parts = (
        FilePart("a.pdf", "all of it", reads=Reads.PASSAGES),
        PassagesPart((Passage(1, "a.pdf", "some"), Passage(2, "a.pdf", "not this", struck=True))),
        TextPart("How long?"),
    )
    (asked,) = messages(user(*parts))
    assert asked == {"role": "user", "content": prompt_text(parts)}
    assert "some" in asked["content"]
    assert "not this" not in asked["content"]
    pictured = messages(user(*parts, ImagePart("a.png")))[0]["content"]
    assert pictured[0] == {"type": "text", "text": prompt_text(parts)}


def test_images_are_parts_of_the_content() -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(PNG)}}
    assert messages(
        user(TextPart("What is"), ImagePart("a.png"), TextPart("this?")), user(TextPart("Say it."))
    ) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is"},
                image,
                {"type": "text", "text": "this?"},
                {"type": "text", "text": "Say it."},
            ],
        }
    ]
    assert data_url(PNG) == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert data_url(b"\xff\xd8\xff\xe0").startswith("data:image/jpeg;")
    assert data_url(b"RIFF0000WEBP").startswith("data:image/webp;")
    assert data_url(b"\0\0\0\x1cftypavif").startswith("data:image/avif;")
    assert data_url(b"MM\0*0000").startswith("data:image/tiff;")


def test_the_detail_of_a_picture_is_said_unless_it_is_the_usual_one() -> None:
    parts = (ImagePart("", detail=each) for each in (Detail.LOW, Detail.STANDARD, Detail.HIGH, 300))
    asked = question(messages=(PromptMessage(*user(*parts)),))
    (message,) = request_body(asked, K.OPENAI, lambda part: PNG)["messages"]
    said = [each["image_url"].get("detail") for each in message["content"]]
    assert said == ["low", None, "high", None]  # servers know no number of tokens


def test_a_model_that_sees_nothing_is_told_of_pictures() -> None:
    def unread(part: ImagePart) -> bytes:
        raise AssertionError(f"{part.name} was read")

    parts = (TextPart("What is"), ImagePart('a "b".png'), TextPart("this?"))
    asked = question(messages=(PromptMessage(*user(*parts)),), images=False)
    (message,) = request_body(asked, K.OPENAI, unread)["messages"]
    assert message["content"] == 'What is\n[picture "a \\"b\\".png", which you cannot see]\nthis?'
    described = question(
        messages=(PromptMessage(*user(ImagePart("a.png", description="A tree"))),), images=False
    )
    (message,) = request_body(described, K.OPENAI, unread)["messages"]
    assert '"a.png" described as "A tree", which you' in message["content"]


def test_a_picture_without_bytes_is_an_error_of_its_file() -> None:
    asked = question(messages=(PromptMessage(*user(ImagePart("a.png"))),))
    with pytest.raises(OSError, match="empty"):
        request_body(asked, K.OPENAI, lambda part: b"")


def test_calls_and_results_of_tools_are_messages() -> None:
    call = ToolCallPart("add", '{"a": 1}', "c1")
    now = ToolCallPart("now", "", "c2")
    turns = (
        user(TextPart("Old")),
        model(ThoughtPart("old thought"), TextPart("Fine")),
        user(TextPart("Add")),
        model(ThoughtPart("Hm"), TextPart("I add."), call, now, ToolResultPart("add", "2", "c1"),
              ToolResultPart("now", "12:00", "c2"), TextPart("It is 2.")),
    )  # fmt: skip
    made = messages(*turns, user(TextPart("Thanks")))
    assert made[3:] == [
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [
                {"id": "c1", "type": "function",
                 "function": {"name": "add", "arguments": '{"a": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "tool", "tool_call_id": "c2", "content": "12:00"},
        {"role": "assistant", "content": "It is 2."},
        {"role": "user", "content": "Thanks"},
    ]  # fmt: skip
    inside = messages(*turns[:3], model(*turns[3][1][:6]))
    assert inside[3]["reasoning"] == inside[3]["reasoning_content"] == "Hm"
    assert "reasoning" not in inside[1]


def test_pictures_of_tools_follow_all_results_of_their_round() -> None:
    def files(*names: str) -> tuple[KeptFile, ...]:
        return tuple(KeptFile(name, "a" * 64, 5, 3, 2) for name in names)

    def found(part: ImagePart) -> bytes:
        if part.name == "gone.png":
            raise FileNotFoundError
        return PNG

    look, again = ToolCallPart("look", "{}", "c1"), ToolCallPart("look", "{}", "c2")
    seen = ToolResultPart("look", "seen", "c1", files=files("a.png", "gone.png"))
    seen_again = ToolResultPart(
        "look", "so", "c2", files=(KeptFile("b.txt", "b" * 64, 5), *files(*"123456"))
    )
    turns = (
        user(TextPart("Look")),
        model(look, again, seen, seen_again, TextPart("It is red.")),
        user(TextPart("Sure?")),
        model(look, seen),
        user(TextPart("Well?")),
    )
    asked = question(messages=tuple(PromptMessage(*turn) for turn in turns))
    made = request_body(asked, K.OPENAI, found)
    image = {"type": "image_url", "image_url": {"url": data_url(PNG)}}
    said = {"type": "text", "text": "The pictures that the tools returned:"}
    assert [each["role"] for each in made["messages"]] == [
        "user", "assistant", "tool", "tool", "user", "assistant", "user", "assistant", "tool", "user"
    ]  # fmt: skip
    assert made["messages"][4]["content"] == [said, image, *[image] * 4]  # no more of one result
    assert made["messages"][-1]["content"] == [said, image, {"type": "text", "text": "Well?"}]
    unseen = request_body(replace(asked, images=False), K.OPENAI, found)["messages"]
    assert [each["role"] for each in unseen].count("user") == 3
    for message in ("roles must alternate user/assistant", "This model cannot read images"):
        smaller = without(made, ErrorBody(message))
        assert smaller is not None
        assert smaller["messages"][-1]["content"] == [{"type": "text", "text": "Well?"}]
        assert smaller["messages"][:-1] == unseen[:-1]
        assert without(smaller, ErrorBody(message)) is None


@pytest.mark.parametrize("kind", list(K))
def test_continuing_an_answer(kind: ServerKind) -> None:
    asked = question(
        messages=(
            PromptMessage(Role.USER, (TextPart("Count"),)),
            PromptMessage(Role.ASSISTANT, (TextPart("1, 2,"),)),
        )
    )
    made = body(asked, kind)
    last = made["messages"][-1]
    if kind in (K.OPENAI, K.LM_STUDIO):
        assert last["role"] == "user"
        assert "Continue" in last["content"]
    else:
        assert last == {"role": "assistant", "content": "1, 2,"}
    assert made.get("continue_final_message", False) is (kind in (K.VLLM, K.SGLANG))


SAMPLING: Mapping[str, float] = {
    "temperature": 0.5, "top_k": 20.0, "repeat_penalty": 1.1, "typical_p": 0.9, "seed": 7.0,
    "temperature_range": 0.2, "unknown": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (K.LLAMA_SERVER, {"temperature": 0.5, "top_k": 20, "repeat_penalty": 1.1, "typical_p": 0.9,
                          "seed": 7, "dynatemp_range": 0.2}),
        (K.VLLM, {"temperature": 0.5, "top_k": 20, "repetition_penalty": 1.1, "seed": 7}),
        (K.OLLAMA, {"temperature": 0.5, "seed": 7}),
        (K.LM_STUDIO, {"temperature": 0.5, "top_k": 20, "repeat_penalty": 1.1, "seed": 7}),
    ],
)  # fmt: skip
def test_samplers_under_the_names_of_each_server(kind: ServerKind, sent: dict[str, Any]) -> None:
    plain = body(question(), kind)
    made = body(question(sampling=SAMPLING), kind)
    assert {name: made[name] for name in made.keys() - plain.keys()} == sent
    assert all(type(made[name]) is type(value) for name, value in sent.items())


def test_random_seed_is_not_sent() -> None:
    assert "seed" not in body(question(sampling={"seed": -1}))


def test_thinking_stop_and_length() -> None:
    asked = question(thinking=False, stop=("a", "b", "c", "d", "e"), max_tokens=9)
    made = body(asked, K.VLLM)
    assert made["chat_template_kwargs"] == {"enable_thinking": False}
    assert (made["stop"], made["max_tokens"]) == (["a", "b", "c", "d", "e"], 9)
    assert body(asked, K.OPENAI)["stop"] == ["a", "b", "c", "d"]
    assert body(asked, K.OLLAMA)["reasoning_effort"] == "none"
    assert "chat_template_kwargs" not in body(asked, K.OPENAI)


@pytest.mark.parametrize(
    ("constraint", "kind", "sent"),
    [
        (Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "array"}'), K.OPENAI,
         {"response_format": {"type": "json_schema", "json_schema": {
             "name": "answer", "schema": {"type": "array"}, "strict": True}}}),
        (Constraint(ConstraintKind.JSON_SCHEMA, '{"type": ["object", "array"]}'), K.OLLAMA,
         {"response_format": {"type": "json_object"}}),
        (Constraint(ConstraintKind.CHOICES, '["yes", "n\\"o"]'), K.LLAMA_SERVER,
         {"grammar": 'root ::= "yes" | "n\\"o"'}),
        (Constraint(ConstraintKind.CHOICES, '["a+", "b"]'), K.SGLANG, {"regex": "(a\\+)|(b)"}),
        (Constraint(ConstraintKind.CHOICES, '["a"]'), K.VLLM, {"structured_outputs": {"choice": ["a"]}}),
        (Constraint(ConstraintKind.REGEX, "a+"), K.VLLM, {"structured_outputs": {"regex": "a+"}}),
        (Constraint(ConstraintKind.REGEX, "a+"), K.SGLANG, {"regex": "a+"}),
        (Constraint(ConstraintKind.GBNF, "root ::= x"), K.VLLM,
         {"structured_outputs": {"grammar": "root ::= x"}}),
        (Constraint(ConstraintKind.GBNF, "root ::= x"), K.TOKONOMA, {"grammar": "root ::= x"}),
    ],
)  # fmt: skip
def test_formats(constraint: Constraint, kind: ServerKind, sent: dict[str, Any]) -> None:
    assert constraint.kind in formats_of(kind)
    plain = body(question(), kind)
    made = body(question(constraint=constraint), kind)
    assert {name: made[name] for name in made.keys() - plain.keys()} == sent


def test_formats_that_nobody_has() -> None:
    assert all(ConstraintKind.LARK not in formats_of(kind) for kind in K)
    assert formats_of(K.OPENAI) == {ConstraintKind.JSON_SCHEMA}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None), ("none", "none"), ("required", "required"),
        ("now", {"type": "function", "function": {"name": "now"}}),
    ],
)  # fmt: skip
def test_tools(choice: str, sent: Any) -> None:
    tool = OfferedTool("now", "The time.", '{"type": "object"}')
    made = body(question(tools=(tool,), tool_choice=choice))
    assert made["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "now",
                "description": "The time.",
                "parameters": {"type": "object"},
            },
        }
    ]
    assert made.get("tool_choice") == sent


def test_what_must_not_be_left_out_stays() -> None:
    made = {"model": "m", "messages": [], "stream": True, "tools": [], "grammar": "x", "top_k": 1}
    for name in ("model", "messages", "stream", "tools", "grammar"):
        assert without(made, ErrorBody(f"Unknown parameter: '{name}'")) is None
    assert without(made, ErrorBody("Bad request")) is None
    assert without(made, ErrorBody("Bad", param="top_k")) == {
        name: value for name, value in made.items() if name != "top_k"
    }


def test_prefill_that_is_refused_becomes_a_question() -> None:
    last = {"role": "assistant", "content": "1, 2,"}
    made = {"model": "m", "messages": [last], "stream": True, "continue_final_message": True}
    thinking = without(
        made, ErrorBody("Assistant response prefill is incompatible with enable_thinking.")
    )
    assert thinking is not None
    assert thinking["chat_template_kwargs"] == {"enable_thinking": False}
    asked = without(made, ErrorBody("the last message must be from the user"))
    assert asked is not None
    assert [each["role"] for each in asked["messages"]] == ["assistant", "user"]
    assert "continue_final_message" not in asked


def test_reasoning_that_is_refused_is_left_out() -> None:
    message = {"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "a"}
    made = {"model": "m", "messages": [message], "stream": True}
    first = without(made, ErrorBody("property 'messages.0.reasoning_content' is unsupported"))
    assert first is not None
    assert "reasoning_content" not in first["messages"][0]
    second = without(first, ErrorBody("unknown field `reasoning`"))
    assert second is not None
    assert second["messages"] == [{"role": "assistant", "content": "x"}]
