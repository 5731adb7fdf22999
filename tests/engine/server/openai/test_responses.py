"""The Responses API over HTTP, and what its requests mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import scripted_model
from engine.messages import (
    ReasoningPart,
    Role,
    Sampling,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from engine.server.carried import pack
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.openai.responses import parse
from engine.server.pictures import PictureAccess
from serving import Served

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
# What Codex sends, each with what it means for a server without state.
CODEX = {
    "model": "scripted",
    "instructions": "You are an agent.",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Ask before you delete."}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    ],
    "tools": [
        TOOL | {"strict": False},
        {"type": "web_search"},
        {"type": "image_generation"},
        {"type": "namespace", "name": "mcp", "tools": [TOOL]},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "a",
    "client_metadata": {"x": "y"},
}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    made = Served(scripted_model.write(path, thoughts=scripted_model.THOUGHTS))
    yield made
    made.close()


def parsed(path: str = PATH, **body: Any) -> Any:
    url = SimpleNamespace(path=path)
    body = {"model": "m", "input": "hello"} | body
    if body["model"] is None:
        del body["model"]
    return parse(
        SimpleNamespace(
            request=SimpleNamespace(url=url),
            body=Fields(body),
            exchange=None,
            pictures=PictureAccess(),
        )
    )  # type: ignore[arg-type]


def test_all_that_codex_sends_is_understood() -> None:
    request = parsed(**CODEX)
    wanted = request.wanted
    assert [(turn.role, turn.text) for turn in wanted.turns] == [
        (Role.SYSTEM, "You are an agent.\n\nAsk before you delete."),
        (Role.USER, "hello"),
    ]
    assert [tool.name for tool in wanted.tools] == ["weather"]
    assert wanted.tool_choice is ToolChoice.AUTO
    assert wanted.thinking_budget
    assert request.events.summarizes
    assert request.events.packs
    assert request.streams


def test_the_items_of_an_answer_come_back_as_one_turn() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "summary": [], "encrypted_content": pack("I look.")},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Well."}],
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"a": 1}'},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "sun"}],
        },
    ]
    turns = parsed(input=items).wanted.turns
    assert turns[1].content == (
        ReasoningPart("I look."),
        TextPart("Well."),
        ToolCall("c", "weather", '{"a": 1}'),
    )
    assert turns[2].results == (ToolResult("c", "weather", "sun"),)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (
            {"content": [{"type": "reasoning_text", "text": "a"}], "encrypted_content": pack("b")},
            "a",
        ),
        ({"encrypted_content": pack("b"), "summary": [{"type": "summary_text", "text": "c"}]}, "b"),
        ({"encrypted_content": "gAAAA", "summary": [{"type": "summary_text", "text": "c"}]}, "c"),
    ],
)
def test_reasoning_is_read_from_where_it_is_whole(item: dict[str, Any], text: str) -> None:
    items = [{"type": "reasoning"} | item, {"role": "user", "content": "hello"}]
    assert parsed(input=items).wanted.turns[0].content == (ReasoningPart(text),)


def test_what_codex_tells_of_its_goal_is_read() -> None:
    told = {"type": "function_call_output", "name": "goal", "namespace": "agent", "output": "Win."}
    turns = parsed(input=[{"role": "user", "content": "Go on."}, told]).wanted.turns
    assert [turn.text for turn in turns] == ["Go on.\n\ngoal: Win."]


@pytest.mark.parametrize("item", [{"summary": None}, {"summary": []}, {"content": []}, {}])
def test_reasoning_without_text_is_left_out(item: dict[str, Any]) -> None:
    items = [{"type": "reasoning", "id": "r"} | item, {"role": "user", "content": "hello"}]
    assert [turn.text for turn in parsed(input=items).wanted.turns] == ["hello"]


def test_a_tool_can_be_demanded_or_allowed() -> None:
    other = TOOL | {"name": "time"}
    choice = {"type": "function", "name": "time"}
    assert parsed(tools=[TOOL, other], tool_choice=choice).wanted.tool_choice == "time"
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [choice]}
    wanted = parsed(tools=[TOOL, other], tool_choice=allowed).wanted
    assert [tool.name for tool in wanted.tools] == ["time"]
    assert wanted.tool_choice is ToolChoice.REQUIRED


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": None}, "model"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["hello"]}, "input[0]"),
        ({"input": [{"role": "robot", "content": "a"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "poem"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "call_id": "a"}]}, "input[0].name"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        (
            {"input": [{"type": "compaction", "encrypted_content": "gA"}]},
            "input[0].encrypted_content",
        ),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"reasoning": {"effort": "huge"}}, "reasoning"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as raised:
        parsed(**change)
    assert raised.value.status == 400
    assert field in (raised.value.param or "")


def test_llama_cpps_path_needs_no_model() -> None:
    assert parsed("/responses", model=None).wanted.model == ""


def test_a_stream_ends_with_the_answer_that_is_given_whole(scripted: Served) -> None:
    body = {"model": "scripted", "input": "Count.", "reasoning": {"summary": "auto"}}
    with scripted.http.stream("POST", PATH, json=body | {"stream": True}) as response:
        lines = [line for line in response.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert names == [one["type"] for one in events]
    whole = scripted.post(PATH, body)
    for one in (events[-1]["response"], whole):
        assert [item["type"] for item in one["output"]] == ["reasoning", "message"]
        assert one["output"][0]["summary"][0]["text"].strip() == "I count."
        assert one["output"][1]["content"][0]["text"] == "One two three."
        assert one["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_the_response_says_what_it_was_drawn_with(scripted: Served) -> None:
    (model,) = scripted.engine.resident
    body = {"model": "scripted", "input": "hello", "top_p": 0.5}
    found = scripted.post(PATH, body)
    assert found["temperature"] == (model.sampling or Sampling()).temperature
    assert found["top_p"] == 0.5


def test_the_answer_of_a_format_is_json(scripted: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    body = {"model": "scripted", "input": "hello", "text": {"format": form}}
    found = scripted.post(PATH, body | {"reasoning": {"effort": "none"}})
    (item,) = found["output"]
    assert json.loads(item["content"][0]["text"])["a"] == "b"
    assert found["text"]["format"] == form


def test_a_conversation_is_compacted_and_goes_on(scripted: Served) -> None:
    asked = [
        {"role": "user", "content": "Launch on Tuesday."},
        {"role": "assistant", "content": "Yes."},
    ]
    found = scripted.post(f"{PATH}/compact", {"model": "scripted", "input": asked})
    message, _ = found["output"]
    assert found["object"] == "response.compaction"
    assert message["content"][0]["text"] == "Launch on Tuesday."
    wanted = parsed(input=[*found["output"], {"role": "user", "content": "When?"}]).wanted
    assert wanted.turns[0].text.endswith("so far:\nOne two three.\n\nWhen?")
    again = scripted.post(f"{PATH}/compact", {"model": "scripted", "input": found["output"]})
    assert [one["type"] for one in again["output"]] == ["message", "compaction"]


def test_tokens_are_counted_as_the_answer_counts_them(scripted: Served) -> None:
    body = {"model": "scripted", "input": "hello", "instructions": "Be brief.", "tools": [TOOL]}
    counted = scripted.post(f"{PATH}/input_tokens", body)
    assert counted["object"] == "response.input_tokens"
    assert counted["input_tokens"] == scripted.post(PATH, body)["usage"]["input_tokens"]
    body |= {"reasoning": {"effort": "none"}}
    brief = scripted.post(f"{PATH}/input_tokens", body)["input_tokens"]
    assert brief == scripted.post(PATH, body)["usage"]["input_tokens"] != counted["input_tokens"]


def test_a_prompt_that_is_too_long_is_told_before_the_stream(scripted: Served) -> None:
    body = {"model": "scripted", "input": "word " * 9000, "stream": True}
    found = scripted.error(PATH, body)
    assert found["error"]["code"] == "context_length_exceeded"
    old = [{"role": "user", "content": "word " * 9000}, {"role": "assistant", "content": "Yes."}]
    body = {"model": "scripted", "input": [*old, {"role": "user", "content": "hello"}]}
    assert scripted.post(PATH, body | {"truncation": "auto"})["truncation"] == "auto"


def test_llamas_progress_and_timings_are_events_where_asked_for(served: Served) -> None:
    body = {"model": "", "input": "the quick brown fox " * 20, "max_output_tokens": 4}

    def events(**options: bool) -> list[dict[str, Any]]:
        with served.http.stream("POST", PATH, json=body | {"stream": True} | options) as response:
            return [json.loads(one[6:]) for one in response.iter_lines() if one.startswith("data")]

    made = events(timings_per_token=True, return_progress=True)
    progress = [one for one in made if "prompt_progress" in one]
    assert progress
    assert {one["type"] for one in progress} == {"response.in_progress"}
    read = progress[-1]["prompt_progress"]
    assert read["processed"] == read["total"]
    deltas = [one for one in made if one["type"] == "response.output_text.delta"]
    assert [one["timings"]["predicted_n"] for one in deltas] == [1, 2, 3, 4]
    assert made[-1]["timings"]["predicted_n"] == 4
    assert [one["sequence_number"] for one in made] == list(range(len(made)))
    assert not any("timings" in one or "prompt_progress" in one for one in events())
