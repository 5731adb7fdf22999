"""The Messages API: what requests mean, events of an answer, and both over HTTP."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import scripted_model
from engine.messages import (
    FinishReason,
    ReasoningPart,
    Role,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from engine.server.anthropic.message_events import MessageEvents
from engine.server.anthropic.messages import parse
from engine.server.carried import pack, unpack
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.pictures import PictureAccess
from engine.server.values import Begun, CallDelta, Content, Delta, Done, Reasoning, Timings, Usage
from serving import Served

PATH = "/v1/messages"
TOOL = {"name": "weather", "description": "d", "input_schema": {"type": "object"}}
HELLO = [{"role": "user", "content": "hello"}]
# What Claude Code sends; its first line of instructions is another one in every request.
BILLING = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=%s;"
SYSTEM = [
    {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": "Read before you write."},
]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    made = Served(scripted_model.write(path, thoughts=scripted_model.THOUGHTS))
    yield made
    made.close()


def parsed(**body: Any) -> Any:
    body = {"model": "m", "max_tokens": 9, "messages": HELLO} | body
    return parse(SimpleNamespace(body=Fields(body), exchange=None, pictures=PictureAccess()))  # type: ignore[arg-type]


def test_all_that_claude_code_sends_is_understood() -> None:
    system = [{"type": "text", "text": BILLING % "0aaa9"}, *SYSTEM]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Fix it."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look.", "signature": "x"},
                {"type": "redacted_thinking", "data": "abc"},
                {"type": "text", "text": "Well."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"a": "ü"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": "sun",
                    "is_error": False,
                },
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "system", "content": "The file changed."},
    ]
    request = parsed(
        system=system,
        messages=messages,
        tools=[
            TOOL | {"eager_input_streaming": True},
            {"type": "web_search_20250305", "name": "w"},
        ],
        thinking={"type": "adaptive", "display": "omitted"},
        output_config={"effort": "high"},
        context_management={"edits": []},
        metadata={"user_id": "u"},
        stream=True,
    )
    wanted = request.wanted
    first, second, answer, result, last = wanted.turns
    assert first.text == "You are an agent.\n\nRead before you write."
    assert second.text == "Fix it."
    call = ToolCall("toolu_1", "weather", '{"a": "ü"}')
    assert answer.content == (ReasoningPart("I look."), TextPart("Well."), call)
    assert result.results == (ToolResult("toolu_1", "weather", "sun"),)
    assert (last.role, last.text) == (Role.USER, "Go on.\n\nThe file changed.")
    assert [tool.name for tool in wanted.tools] == ["weather"]
    assert wanted.thinking is True
    assert request.hides_thoughts
    assert request.streams


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice.AUTO),
        ({"type": "auto"}, ToolChoice.AUTO),
        ({"type": "any"}, ToolChoice.REQUIRED),
        ({"type": "none"}, ToolChoice.NONE),
        ({"type": "tool", "name": "weather"}, "weather"),
    ],
)
def test_a_tool_can_be_demanded(choice: Any, expected: Any) -> None:
    assert parsed(tools=[TOOL], tool_choice=choice).wanted.tool_choice == expected
    once = parsed(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert not once.wanted.parallel_tool_calls


def test_a_document_of_text_is_read() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Once."}
    block = {"type": "document", "source": source, "title": "A tale"}
    turns = parsed(messages=[{"role": "user", "content": [block]}]).wanted.turns
    assert turns[0].text == "A tale\n\nOnce."
    call = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
    found = {"type": "search_result", "title": "B", "content": [{"type": "text", "text": "Two."}]}
    pdf = {"type": "document", "source": {"type": "base64", "data": ""}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [block, found, pdf]}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    (given,) = parsed(messages=messages).wanted.turns[1].results
    assert given.text.startswith("A tale\n\nOnce.\n\nB\n\nTwo.\n\n[document, which")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": None}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"text": "a"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "content[0].tool_use_id",
        ),
        ({"system": 1}, "system"),
        ({"messages": []}, "messages"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "b"}}, "tool_choice.name"),
        ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop_sequences": [1]}, "stop_sequences[0]"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as raised:
        parsed(**change)
    assert raised.value.status == 400
    assert field in (raised.value.param or "")


SPOKEN: tuple[Delta, ...] = (
    Begun("tiny", 10, 4),
    Reasoning("I "),
    Reasoning("look."),
    Content("Well."),
    CallDelta(0, "call/a", "weather"),
    CallDelta(0, arguments='{"city": '),
    CallDelta(0, arguments='"Paris"}'),
    CallDelta(1, "call_b", "time"),
    Done(0, FinishReason.TOOL_CALLS, Usage(10, 4, 7, 3), Timings()),
)


def events(*deltas: Delta, **options: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    writer = MessageEvents(**options)
    made = [copy.deepcopy(one) for delta in deltas for one in writer.push(delta)]
    return made, writer.whole


def test_the_events_add_up_to_the_message() -> None:
    made, message = events(*SPOKEN)
    start, _, *blocks, delta, stop = made
    assert start["message"]["content"] == []
    assert start["message"]["usage"]["input_tokens"] == 6
    assert start["message"]["usage"]["cache_read_input_tokens"] == 4
    built: list[dict[str, Any]] = []
    for event in blocks:
        if event["type"] == "content_block_start":
            assert event["index"] == len(built)
            built.append(event["content_block"] | {"json": ""})
        elif event["type"] == "content_block_delta":
            change = dict(event["delta"])
            kind = change.pop("type")
            field = {"input_json_delta": "json"}.get(kind, kind.removesuffix("_delta"))
            built[event["index"]][field] += next(iter(change.values()))
    for block in built:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text or "{}")
    assert built == message["content"]
    assert [block["type"] for block in built] == ["thinking", "text", "tool_use", "tool_use"]
    assert built[2]["id"] == "call_a"
    assert built[2]["input"] == {"city": "Paris"}
    assert delta["delta"]["stop_reason"] == message["stop_reason"] == "tool_use"
    assert delta["usage"]["output_tokens"] == 7
    assert stop == {"type": "message_stop"}


def test_thoughts_that_the_client_does_not_want_come_packed() -> None:
    made, message = events(*SPOKEN, hides_thoughts=True)
    assert "thinking_delta" not in {one.get("delta", {}).get("type") for one in made}
    block = message["content"][0]
    assert block["thinking"] == ""
    assert unpack(block["signature"]) == "I look."
    replayed = {"type": "thinking", "thinking": "", "signature": pack("I look.")}
    turns = parsed(messages=[{"role": "assistant", "content": [replayed]}]).wanted.turns
    assert turns[0].content == (ReasoningPart("I look."),)


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        (FinishReason.END, "end_turn"),
        (FinishReason.LENGTH, "max_tokens"),
        (FinishReason.CONTEXT, "model_context_window_exceeded"),
        (FinishReason.STOP, "stop_sequence"),
    ],
)
def test_the_reason_of_the_end(reason: FinishReason, stop_reason: str) -> None:
    done = Done(0, reason, Usage(), Timings())
    _, message = events(Begun("tiny", 1, 0), done)
    assert message["stop_reason"] == stop_reason
    assert message["content"] == [{"type": "text", "text": "", "citations": None}]


def test_an_answer_streams_and_is_whole(scripted: Served) -> None:
    body = {"model": "scripted", "max_tokens": 50, "messages": HELLO}
    whole = scripted.post(f"{PATH}?beta=true", body)
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert whole["content"][1]["text"] == "One two three."
    assert "timings" not in whole
    with scripted.http.stream("POST", PATH, json=body | {"stream": True}) as response:
        lines = [line for line in response.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    found = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert names == [one["type"] for one in found]
    text = "".join(one["delta"].get("text", "") for one in found if "delta" in one)
    assert text == whole["content"][1]["text"]


def test_the_string_that_ended_an_answer_is_named(scripted: Served) -> None:
    body = {"model": "scripted", "max_tokens": 50, "messages": HELLO}
    found = scripted.post(PATH, body | {"stop_sequences": ["four", " three", "two three"]})
    assert found["content"][1]["text"].strip() == "One"
    assert found["stop_reason"] == "stop_sequence"
    assert found["stop_sequence"] == "two three"
    whole = scripted.post(PATH, body | {"stop_sequences": [""]})
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("end_turn", None)


def test_the_changing_line_of_an_agent_keeps_the_prefix(scripted: Served) -> None:
    def asked(line: str, question: str) -> dict[str, Any]:
        system = [{"type": "text", "text": BILLING % line}, *SYSTEM]
        messages = [{"role": "user", "content": question}]
        return {"model": "scripted", "max_tokens": 1, "system": system, "messages": messages}

    first = scripted.post(PATH, asked("36ee5", "prefix " * 100))["usage"]
    again = scripted.post(PATH, asked("0aaa9", "prefix " * 100 + "and more"))["usage"]
    assert again["cache_read_input_tokens"] > 0.9 * first["input_tokens"]


def test_tokens_are_counted_without_a_limit(scripted: Served) -> None:
    body = {"model": "scripted", "messages": HELLO, "system": "Be brief.", "tools": [TOOL]}
    counted = scripted.post(f"{PATH}/count_tokens", body)
    usage = scripted.post(PATH, body | {"max_tokens": 1})["usage"]
    total = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert counted == {"input_tokens": total}


def test_errors_have_anthropics_shape(scripted: Served) -> None:
    found = scripted.error(PATH, {"model": "scripted", "messages": HELLO})
    assert found["type"] == "error"
    assert found["error"]["type"] == "invalid_request_error"
    assert "max_tokens" in found["error"]["message"]
    body = {"model": "scripted", "max_tokens": 9, "messages": HELLO}
    unknown = scripted.error(PATH, body | {"model": "claude-7"}, status=404)
    assert unknown["error"]["type"] == "not_found_error"
    long = [{"role": "user", "content": "word " * 9000}]
    found = scripted.error(PATH, body | {"messages": long, "stream": True})
    assert "prompt is too long" in found["error"]["message"]  # agents look for these words
