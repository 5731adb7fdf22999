"""Tool calls through every API, by a model that calls where it must: streamed, whole, answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import scripted_model
from serving import Served

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
ARGUMENTS = {"city": scripted_model.VALUE}
QUESTION = [{"role": "user", "content": "weather?"}]
OPENAI = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
RESPONSES = {"type": "function", "name": "weather", "parameters": SCHEMA}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
ANTHROPIC = {"name": "weather", "input_schema": SCHEMA}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(scripted_model.write(tmp_path_factory.mktemp("scripted") / "scripted.gguf"))
    yield made
    made.close()


def lines(served: Served, path: str, body: dict[str, Any]) -> list[Any]:
    """The JSON values of a stream."""
    with served.http.stream("POST", path, json=body | {"stream": True}) as response:
        found = [line.removeprefix("data: ") for line in response.iter_lines()]
    return [json.loads(line) for line in found if line.startswith("{")]


def test_chat_completions(scripted: Served) -> None:
    body = {"model": "", "messages": QUESTION, "tools": [OPENAI], "tool_choice": "required"}
    (choice,) = scripted.post("/v1/chat/completions", body)["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == ARGUMENTS
    assert choice["finish_reason"] == "tool_calls"
    deltas = [one["choices"][0]["delta"] for one in lines(scripted, "/v1/chat/completions", body)]
    pieces = [one["tool_calls"][0]["function"] for one in deltas if "tool_calls" in one]
    assert json.loads("".join(one["arguments"] for one in pieces)) == ARGUMENTS
    assert len(pieces) > 3
    assert [one.get("name") for one in pieces] == ["weather"] + [None] * (len(pieces) - 1)
    answer = choice["message"] | {"content": None}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
    body |= {"messages": [*QUESTION, answer, result], "tool_choice": "auto"}
    (choice,) = scripted.post("/v1/chat/completions", body)["choices"]
    assert choice["message"]["content"] == "One two three."


@pytest.mark.parametrize("arguments", ['{"city": "Pa', "", None, {"city": "Paris"}, "[1]"])
def test_a_call_in_a_chat_does_not_end_it(scripted: Served, arguments: Any) -> None:
    """Cut by a limit, without arguments, or with the result of another one."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages: list[Any] = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "left out", "content": "rain"},
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [{"type": "text", "text": "sun"}, PICTURE],
        },
        {"role": "assistant", "content": None},
        {"role": "user", "content": ""},
    ]
    body = {"model": "", "messages": messages, "tools": [OPENAI]}
    (choice,) = scripted.post("/v1/chat/completions", body)["choices"]
    assert choice["message"]["content"] == "One two three."


def test_the_tools_that_a_chat_allows(scripted: Served) -> None:
    other = {"type": "function", "name": "time", "parameters": SCHEMA}  # as Responses have it
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    body = {"model": "", "messages": QUESTION, "tools": [OPENAI, other], "tool_choice": choice}
    (found,) = scripted.post("/v1/chat/completions", body)["choices"]
    assert [one["function"]["name"] for one in found["message"]["tool_calls"]] == ["time"]


def test_responses(scripted: Served) -> None:
    body = {"model": "scripted", "input": QUESTION, "tools": [RESPONSES]}
    choice = {"type": "function", "name": "weather"}
    found = scripted.post("/v1/responses", body | {"tool_choice": choice})["output"]
    call = found[-1]
    assert json.loads(call["arguments"]) == ARGUMENTS
    events = lines(scripted, "/v1/responses", body | {"tool_choice": choice})
    pieces = [one["delta"] for one in events if one["type"].endswith("arguments.delta")]
    assert json.loads("".join(pieces)) == ARGUMENTS
    assert len(pieces) > 3
    assert sum(one["type"] == "response.output_item.added" for one in events) == len(found)
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    again = scripted.post("/v1/responses", body | {"input": [*QUESTION, *found, result]})
    assert again["output"][0]["content"][0]["text"] == "One two three."


def test_messages(scripted: Served) -> None:
    body = {"model": "scripted", "max_tokens": 99, "messages": QUESTION, "tools": [ANTHROPIC]}
    found = scripted.post("/v1/messages", body | {"tool_choice": {"type": "any"}})
    call = found["content"][-1]
    assert call["input"] == ARGUMENTS
    assert found["stop_reason"] == "tool_use"
    events = lines(scripted, "/v1/messages", body | {"tool_choice": {"type": "any"}})
    pieces = [one["delta"].get("partial_json", "") for one in events if "delta" in one]
    assert json.loads("".join(pieces)) == ARGUMENTS
    assert sum(map(bool, pieces)) > 3
    assert sum(one["type"] == "content_block_start" for one in events) == len(found["content"])
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sun"}
    turns = [
        {"role": "assistant", "content": found["content"]},
        {"role": "user", "content": [result]},
    ]
    again = scripted.post("/v1/messages", body | {"messages": [*QUESTION, *turns]})
    assert again["content"][0]["text"] == "One two three."


@pytest.mark.parametrize("limit", [1, 9, 20])
def test_a_call_that_is_cut_before_its_name_is_none(scripted: Served, limit: int) -> None:
    choice = {"type": "function", "name": "weather"}
    body = {"model": "scripted", "input": QUESTION, "tools": [RESPONSES], "tool_choice": choice}
    found = scripted.post("/v1/responses", body | {"max_output_tokens": limit})
    assert found["status"] == "incomplete"
    assert [one["type"] for one in found["output"]] == ["message"]
    assert found["usage"]["output_tokens"] == limit
    body = {"model": "scripted", "input": [*QUESTION, *found["output"], *QUESTION]}
    assert scripted.post("/v1/responses", body)["status"] == "completed"


def test_a_call_that_is_cut_in_its_arguments_has_their_beginning(scripted: Served) -> None:
    choice = {"type": "function", "name": "weather"}
    body = {"model": "scripted", "input": QUESTION, "tools": [RESPONSES], "tool_choice": choice}
    body |= {"temperature": 0}
    whole = scripted.post("/v1/responses", body)
    limit = {"max_output_tokens": whole["usage"]["output_tokens"] - 16}
    found = scripted.post("/v1/responses", body | limit)
    assert found["status"] == "incomplete"
    call = found["output"][-1]
    assert (call["type"], call["name"], call["status"]) == (
        "function_call",
        "weather",
        "incomplete",
    )
    assert call["arguments"]
    assert whole["output"][-1]["arguments"].startswith(call["arguments"])
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    body |= {"input": [*QUESTION, *found["output"], result], "tool_choice": "auto"}
    assert scripted.post("/v1/responses", body)["status"] == "completed"
    named = {"model": "scripted", "max_tokens": 99, "messages": QUESTION}
    named |= {"tools": [ANTHROPIC], "tool_choice": {"type": "any"}, "temperature": 0}
    tokens = scripted.post("/v1/messages", named)["usage"]["output_tokens"]
    cut = scripted.post("/v1/messages", named | {"max_tokens": tokens - 18})
    assert cut["stop_reason"] == "max_tokens"
    assert cut["content"][-1]["type"] == "tool_use"
    assert cut["content"][-1]["input"] == {}


def test_ollama(scripted: Served) -> None:
    body = {"model": "scripted", "messages": QUESTION, "tools": [OPENAI]}
    whole = scripted.post("/api/chat", body | {"stream": False})
    assert whole["message"]["content"] == "One two three."  # its API cannot demand a call
