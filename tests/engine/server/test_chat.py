"""Chat completions: shapes of whole and streamed answers, options and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from engine.errors import EngineError
from engine.server.values import Begun, Content, Delta
from serving import Served, chat

PATH = "/v1/chat/completions"


def test_an_answer_has_openais_shape(served: Served) -> None:
    found = served.post(PATH, chat())
    (choice,) = found["choices"]
    assert found["object"] == "chat.completion"
    assert found["model"] == "tiny-served"
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] == 8
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + 8
    assert found["timings"]["predicted_n"] == 8


def test_a_stream_gives_the_same_text_in_chunks(served: Served) -> None:
    whole = served.post(PATH, chat())["choices"][0]["message"]["content"]
    chunks = served.stream(PATH, chat(stream_options={"include_usage": True}))
    first, *middle, last, usage = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert {chunk["id"] for chunk in chunks} == {first["id"]}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == whole
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("options", [{}, {"stream_options": {}}, {"stream_options": None}])
def test_usage_is_only_streamed_when_asked_for(served: Served, options: dict) -> None:
    chunks = served.stream(PATH, chat(**options))
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    assert not any("usage" in chunk for chunk in chunks)


def test_the_progress_of_a_prompt_is_reported_when_asked_for(served: Served) -> None:
    chunks = served.stream(PATH, chat("a new text " * 60, return_progress=True))
    found = [one["prompt_progress"] for one in chunks if "prompt_progress" in one]
    assert found[0]["cache"] == found[0]["processed"] < found[0]["total"]
    assert found[-1]["processed"] == found[-1]["total"]
    assert not any("prompt_progress" in one for one in served.stream(PATH, chat()))


def test_the_tokens_of_a_prompt_are_counted(served: Served) -> None:
    count = served.post(f"{PATH}/input_tokens", chat())["input_tokens"]
    assert count == served.post(PATH, chat())["usage"]["prompt_tokens"]


def test_an_error_in_mid_stream_is_its_last_event(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(wanted: object) -> AsyncGenerator[Delta, None]:
        yield Begun("tiny-served", 3, 0)
        yield Content("a")
        raise EngineError("The disk is full.", "Free some space.")

    monkeypatch.setattr(served.server.service, "generate", broken)
    with served.http.stream("POST", PATH, json=chat(stream=True)) as response:
        lines = [json.loads(line[6:]) for line in response.iter_lines() if line]
    assert response.status_code == 200
    failed = served.server.activity.log[0]
    assert failed.outcome == "The disk is full. Free some space."
    assert lines[1]["choices"][0]["delta"]["content"] == "a"
    assert lines[-1]["error"]["message"] == "The disk is full. Free some space."


def test_several_answers_have_indexes(served: Served) -> None:
    found = served.post(PATH, chat(n=3, temperature=1.0))
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    chunks = served.stream(PATH, chat(n=2))
    assert {chunk["choices"][0]["index"] for chunk in chunks} == {0, 1}


def test_a_schema_and_log_probabilities(served: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = chat(response_format=form, logprobs=True, top_logprobs=2, max_tokens=64)
    (choice,) = served.post(PATH, body)["choices"]
    assert json.loads(choice["message"]["content"])["a"] == "b"
    assert all(len(one["top_logprobs"]) == 2 for one in choice["logprobs"]["content"])


def test_the_bytes_of_a_token_that_is_no_character_alone(served: Served) -> None:
    pieces = served.post("/tokenize", {"content": "é", "with_pieces": True})["tokens"]
    (token,) = [one["id"] for one in pieces if one["piece"] == [0xC3]]
    body = chat(max_tokens=2, temperature=0, logprobs=True, logit_bias={token: 100})
    (choice,) = served.post(PATH, body)["choices"]
    assert [one["bytes"] for one in choice["logprobs"]["content"]] == [[0xC3]] * 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "x"}] * 2}, "messages"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "continue_final_message"),
        ({"messages": [{"role": "user", "content": 3}]}, "content"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"stop": [1]}, "stop[0]"),
        ({"logit_bias": {"": 1}}, "logit_bias"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "function.name"),
        ({"tool_choice": {"type": "robot"}}, "tool_choice.type"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"response_format": "json"}, "response_format"),
        ({"stream": "yes"}, "stream"),
        ({"seed": 1e300}, "seed"),
    ],
)
def test_a_wrong_field_is_named(served: Served, change: dict, word: str) -> None:
    error = served.error(PATH, chat() | change)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"].endswith(word)
    assert error["message"].startswith("`")


def test_unknown_fields_are_ignored(served: Served) -> None:
    assert served.post(PATH, chat(metadata={"a": 1}, store=False, user="x", service_tier=None))


def test_openais_route_needs_a_model_and_llamas_does_not(served: Served) -> None:
    body = chat()
    del body["model"]
    assert served.error(PATH, body)["error"]["param"] == "model"
    assert served.post("/chat/completions", body)["model"] == "tiny-served"
    assert served.error(PATH, body | {"model": None})["error"]["param"] == "model"


def test_an_unknown_model_is_not_found(served: Served) -> None:
    error = served.error(PATH, chat(model="gpt-7"), 404)["error"]
    assert error["code"] == "model_not_found"
    assert "tiny-served" in error["message"]


def test_a_prompt_that_is_too_long_names_both_sizes(served: Served) -> None:
    error = served.error(PATH, chat("word " * 5000))["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["n_ctx"] == 2048 < error["n_prompt_tokens"]
