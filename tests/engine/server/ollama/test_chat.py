"""Ollama's chats and prompts: what requests mean, lines of an answer, and both over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import scripted_model
from engine.messages import FinishReason, ReasoningPart, TextPart, ToolCall, ToolResult
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.ollama.chat import CHAT, GENERATE, Lines, parse_chat, parse_prompt
from engine.server.ollama.names import timestamp
from engine.server.options import keep_seconds
from engine.server.pictures import PictureAccess
from engine.server.values import Begun, CallDelta, Content, Delta, Done, Reasoning, Timings, Usage
from serving import Served

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    made = Served(scripted_model.write(path, thoughts=scripted_model.THOUGHTS))
    yield made
    made.close()


def parsed(**body: Any) -> Any:
    body = {"model": "m", "messages": HELLO} | body
    return parse_chat(SimpleNamespace(body=Fields(body), exchange=None, pictures=PictureAccess()))  # type: ignore[arg-type]


def prompted(**body: Any) -> Any:
    body = {"model": "m", "prompt": "hello"} | body
    return parse_prompt(SimpleNamespace(body=Fields(body), exchange=None, pictures=PictureAccess()))  # type: ignore[arg-type]


def test_options_have_ollamas_names() -> None:
    options = {
        "num_predict": 5,
        "num_ctx": 8192,
        "temperature": 0.5,
        "repeat_last_n": 64,
        "typical_p": 0.9,
        "stop": ["END"],
        "seed": 3,
    }
    wanted = parsed(options=options, format="json", think="low", keep_alive="5m")
    assert wanted.max_tokens == 5
    assert wanted.stop == ("END",)
    assert wanted.sampling == {
        "temperature": 0.5,
        "penalty_window": 64,
        "typical_p": 0.9,
        "seed": 3,
    }
    assert json.loads(wanted.constraint.text) == {"type": "object"}
    assert wanted.thinking_budget
    assert wanted.keep_seconds == 300.0
    assert parsed(options={"num_predict": -1}).max_tokens == 0
    assert parsed(think=False).thinking is False
    assert parsed().thinking is None


def test_calls_without_ids_get_their_results() -> None:
    calls = [{"function": {"name": name, "arguments": {"a": 1}}} for name in ("f", "g")]
    messages = [
        *HELLO,
        {"role": "assistant", "content": "Well.", "thinking": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_name": "g", "content": "2"},
        {"role": "tool", "content": "1"},
    ]
    _, answer, first, second = parsed(messages=messages).turns
    f, g = (ToolCall(id, name, '{"a": 1}') for id, name in (("call00000", "f"), ("call00001", "g")))
    assert answer.content == (ReasoningPart("I look."), TextPart("Well."), f, g)
    assert first.results == (ToolResult(g.id, "g", "2"),)
    assert second.results == (ToolResult(f.id, "f", "1"),)


def test_a_prompt_is_a_question_or_raw() -> None:
    assert [turn.text for turn in prompted(system="Be brief.").turns] == ["Be brief.", "hello"]
    raw = prompted(raw=True)
    assert (raw.prompt, raw.turns) == ("hello", ())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": None}, "model"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [HELLO[0] | {"images": ["iVBO", "?"]}]}, "messages[0].images[1]"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"options": []}, "options"),
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"format": "yaml"}, "format"),
        ({"think": "much"}, "think"),
        ({"keep_alive": "soon"}, "keep_alive"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as raised:
        parsed(**change)
    assert raised.value.status == 400
    assert raised.value.param == field


@pytest.mark.parametrize(("field", "value"), [("template", "x"), ("images[0]", ["?"])])
def test_what_a_prompt_cannot_have_is_named(field: str, value: Any) -> None:
    with pytest.raises(ApiError) as raised:
        prompted(**{field.removesuffix("[0]"): value})
    assert raised.value.param == field


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (-1, -1.0),
        ("0", 0.0),
        ("-1m", -60.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
    ],
)
def test_durations(value: Any, seconds: float | None) -> None:
    assert keep_seconds(Fields({"keep_alive": value})) == seconds
    assert keep_seconds(Fields({"ttl": 60})) == 60.0


def test_times_are_as_go_writes_them() -> None:
    assert timestamp(0.5) == "1970-01-01T00:00:00.500000Z"


def lines(*deltas: Delta, shape: Any = CHAT) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    writer = Lines(shape, 0)
    return [one for delta in deltas for one in writer.push(delta)], writer.whole


def test_lines_have_whole_calls_and_end_with_the_numbers() -> None:
    usage, timings = Usage(10, 4, 7, 3), Timings(0.5, 0.25)
    made, whole = lines(
        Begun("tiny", 10, 4),
        Reasoning("I look."),
        Content("Well."),
        CallDelta(0, "a", "f", '{"x": '),
        Content(""),
        CallDelta(0, arguments="1}"),
        CallDelta(1, "b", "g"),
        Done(0, FinishReason.TOOL_CALLS, usage, timings),
    )
    thinking, text, first, second, end = [one["message"] for one in made]
    assert thinking["thinking"] == "I look."
    assert text["content"] == "Well."
    assert first["tool_calls"][0]["function"] == {"index": 0, "name": "f", "arguments": {"x": 1}}
    assert second["tool_calls"][0]["function"]["arguments"] == {}
    assert end == {"role": "assistant", "content": ""}
    assert [one["done"] for one in made] == [False] * 4 + [True]
    assert made[-1]["done_reason"] == "stop"
    assert made[-1]["eval_count"] == 7
    assert made[-1]["prompt_eval_duration"] == 500_000_000
    assert [one["id"] for one in whole["message"]["tool_calls"]] == ["a", "b"]
    assert whole["message"]["content"] == "Well."
    assert whole["message"]["thinking"] == "I look."


def test_an_answer_that_was_cut_says_so() -> None:
    done = Done(0, FinishReason.LENGTH, Usage(), Timings())
    _, whole = lines(Begun("tiny", 1, 0), Content("One"), done, shape=GENERATE)
    assert whole["response"] == "One"
    assert whole["done_reason"] == "length"


def test_a_chat_streams_unless_told_and_is_whole(scripted: Served) -> None:
    body = {"model": "scripted:latest", "messages": HELLO}
    response = scripted.http.post("/api/chat", json=body)
    assert response.headers["content-type"] == "application/x-ndjson"
    streamed = [json.loads(line) for line in response.text.splitlines()]
    assert streamed[-1]["done"]
    whole = scripted.post("/api/chat", body | {"stream": False})
    text = "".join(one["message"]["content"] for one in streamed)
    assert text == "One two three."
    assert whole["message"]["content"] == text
    assert whole["message"]["thinking"].strip() == "I count."
    assert whole["eval_count"] == streamed[-1]["eval_count"]


def test_a_prompt_is_answered(scripted: Served) -> None:
    body = {"model": "scripted", "prompt": "hello", "stream": False, "think": False}
    found = scripted.post("/api/generate", body)
    assert found["response"] == "One two three."
    assert found["prompt_eval_count"] > 0


def test_a_raw_prompt_is_continued_as_it_is(scripted: Served) -> None:
    raw = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    body = {"model": "scripted", "prompt": raw, "raw": True, "stream": False}
    assert scripted.post("/api/generate", body)["response"] == "One two three."


def test_the_oldest_messages_are_left_out_unless_told(scripted: Served) -> None:
    long = [{"role": "user", "content": "word " * 500}, {"role": "assistant", "content": "Yes."}]
    body = {"model": "scripted", "messages": [*long * 9, *HELLO], "stream": False}
    assert scripted.post("/api/chat", body)["message"]["content"] == "One two three."
    refused = scripted.error("/api/chat", body | {"truncate": False})
    assert "context" in refused["error"]


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_without_a_question_the_model_is_loaded(scripted: Served, path: str) -> None:
    assert scripted.post(path, {"model": "scripted"})["done_reason"] == "load"
    found = scripted.post(path, {"model": "scripted", "keep_alive": 0})
    assert found["done_reason"] == "unload"  # which the window's model survives
    assert [one["name"] for one in scripted.get("/api/ps")["models"]] == ["scripted"]


def test_errors_are_one_sentence(scripted: Served) -> None:
    found = scripted.error("/api/chat", {"model": "llama4", "messages": HELLO}, status=404)
    assert "no model 'llama4'" in found["error"]
