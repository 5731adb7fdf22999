"""Chat completions: shapes of whole and streamed answers, options and errors."""

from __future__ import annotations

import json

import pytest

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


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "content"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"stop": [1]}, "stop[0]"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
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
    assert served.post(PATH, body | {"model": None})["model"] == "tiny-served"


def test_an_unknown_model_is_not_found(served: Served) -> None:
    error = served.error(PATH, chat(model="gpt-7"), 404)["error"]
    assert error["code"] == "model_not_found"
    assert "tiny-served" in error["message"]


def test_a_prompt_that_is_too_long_names_both_sizes(served: Served) -> None:
    error = served.error(PATH, chat("word " * 5000))["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["n_ctx"] == 2048 < error["n_prompt_tokens"]
