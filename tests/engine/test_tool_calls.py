"""Tool calls through the engine: constrained, parsed, and cut by the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import thinkers
import tiny
import tool_templates
from engine import (
    Constraint,
    ConstraintKind,
    Event,
    Failed,
    FinishReason,
    Text,
    Tool,
    ToolCallDelta,
    ToolChoice,
)
from engine_bench import SEEDED, Bench, answer_text, finished

SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["c", "f"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["unit", "days"],
    "additionalProperties": False,
}
WEATHER = Tool("get_weather", "Weather", json.dumps(SCHEMA))
TIME = Tool("get_time", "Time", '{"type": "object", "additionalProperties": false}')


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.engine.stop()


def load(bench: Bench, folder: Path, name: str) -> None:
    template = tool_templates.TEMPLATES[name]
    bench.load(tiny.write(folder / f"{name}.gguf", context=2048, template=template))


def calls(events: list[Event]) -> list[tuple[str, dict[str, object]]]:
    """The calls of an answer, whose deltas have what clients need."""
    made: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, ToolCallDelta):
            if event.index == len(made):
                assert event.id
                assert event.name
                made.append((event.name, ""))
            name, text = made[event.index]
            made[event.index] = (name, text + event.arguments)
    return [(name, json.loads(text)) for name, text in made]


@pytest.mark.parametrize("name", ["hermes", "qwen3-xml", "mistral-v11", "llama-4", "gemma-4"])
def test_an_answer_that_must_call_calls_as_the_schema_says(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    load(bench, tmp_path, name)
    for request, seed in enumerate((SEEDED, None), 2):
        options = {} if seed is None else {"sampling": seed}
        events = bench.generate(
            request,
            "hello",
            tools=(WEATHER, TIME),
            tool_choice="get_weather",
            parallel_tool_calls=False,
            max_tokens=200,
            **options,
        )
        ((called, arguments),) = calls(events)
        assert called == "get_weather"
        assert arguments["unit"] in ("c", "f")
        assert arguments["days"] in (1, 2, 3)
        assert finished(events).reason is FinishReason.TOOL_CALLS
        assert answer_text(events) == ""


def test_a_call_that_the_limit_cuts_before_its_arguments_is_not_given_out(
    bench: Bench, tmp_path: Path
) -> None:
    load(bench, tmp_path, "hermes")
    options = {"tools": (WEATHER,), "tool_choice": ToolChoice.REQUIRED}
    for request, tokens in enumerate((8, 20, 40), 2):
        events = bench.generate(request, "hello", max_tokens=tokens, **options)
        assert calls(events) == []
        assert answer_text(events) == ""
        assert finished(events).reason is FinishReason.LENGTH


@pytest.mark.parametrize("name", ["qwen3-xml", "mistral-v11", "llama-4", "gemma-4"])
def test_a_call_that_the_limit_cuts_has_the_beginning_of_its_arguments(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    load(bench, tmp_path, name)
    schema = json.loads(WEATHER.schema)
    schema["properties"]["text"] = {"type": "string"}
    schema["required"] = ["unit", "text"]
    tool = Tool("get_weather", "", json.dumps(schema))
    options = {"tools": (tool,), "tool_choice": ToolChoice.REQUIRED, "sampling": SEEDED}
    found: list[str] = []
    for request, tokens in enumerate((120, 160), 2):
        events = bench.generate(request, "hello", max_tokens=tokens, **options)
        deltas = [event for event in events if isinstance(event, ToolCallDelta)]
        assert deltas[0].name == "get_weather"
        assert not any(one.name or one.id for one in deltas[1:])
        assert finished(events).reason is FinishReason.LENGTH
        assert answer_text(events) == ""
        found.append("".join(one.arguments for one in deltas))
    assert found[1].startswith(found[0])
    assert len(found[1]) > len(found[0]) > 0


def test_an_answer_without_a_call_is_text(bench: Bench, tmp_path: Path) -> None:
    load(bench, tmp_path, "hermes")
    free = bench.generate(2, "hello", tools=(WEATHER,), max_tokens=12)
    none = bench.generate(3, "hello", tools=(WEATHER,), tool_choice=ToolChoice.NONE, max_tokens=12)
    assert calls(free) == calls(none) == []
    assert answer_text(free)
    assert answer_text(none)
    assert finished(free).reason is finished(none).reason is FinishReason.LENGTH


def test_log_probabilities_of_tokens_in_calls_are_kept(bench: Bench, tmp_path: Path) -> None:
    load(bench, tmp_path, "hermes")
    options = {"tools": (WEATHER,), "tool_choice": ToolChoice.REQUIRED, "logprobs": 2}
    events = bench.generate(2, "hello", max_tokens=200, parallel_tool_calls=False, **options)
    named = sum(len(event.logprobs) for event in events if isinstance(event, Text))
    assert calls(events)
    assert named > 5


def test_schemas_that_cannot_be_followed_leave_any_object(bench: Bench, tmp_path: Path) -> None:
    load(bench, tmp_path, "hermes")
    odd = Tool("f", "", '{"type": "object", "properties": {"a": {"type": "nonsense"}}}')
    events = bench.generate(2, "hello", tools=(odd,), max_tokens=8)
    assert finished(events).reason is FinishReason.LENGTH


def test_bad_requests_fail_with_a_sentence(bench: Bench, tmp_path: Path) -> None:
    load(bench, tmp_path, "hermes")
    events = bench.generate(2, "hello", tools=(WEATHER,), tool_choice="get_news")
    assert isinstance(events[-1], Failed)
    assert "'get_news' that the answer must call is not among the tools" in events[-1].message
    given = Constraint(ConstraintKind.JSON_SCHEMA, "true")
    options = {"tools": (WEATHER,), "tool_choice": ToolChoice.REQUIRED, "constraint": given}
    events = bench.generate(3, "hello", **options)
    assert isinstance(events[-1], Failed)
    assert "cannot follow a schema or grammar too" in events[-1].message
    events = bench.generate(4, "hello", tools=(Tool("f", "", "[]"),), max_tokens=4)
    assert isinstance(events[-1], Failed)
    assert "schema of the tool 'f' is not a JSON object" in events[-1].message


@pytest.mark.parametrize("family", ["Qwen3", "Qwen3.5", "gpt-oss"])
def test_a_call_comes_after_thoughts_that_their_budget_ends(
    bench: Bench, tmp_path: Path, family: str
) -> None:
    bench.load(thinkers.write(tmp_path / "thinks.gguf", thinkers.FAMILIES[family]))
    for request, (choice, budget) in enumerate(
        (
            (ToolChoice.REQUIRED, 6),
            (ToolChoice.REQUIRED, 0),
            ("get_weather", None),
            (ToolChoice.AUTO, 6),
        ),
        2,
    ):
        events = bench.generate(
            request,
            "hello",
            tools=(WEATHER,),
            tool_choice=choice,
            parallel_tool_calls=False,
            thinking=None if budget == 0 else True,
            thinking_budget=budget,
            max_tokens=200,
        )
        found = calls(events)
        is_call = finished(events).reason is FinishReason.TOOL_CALLS
        assert len(found) == is_call
        if choice is ToolChoice.REQUIRED and (budget == 0 or family != "gpt-oss"):
            assert is_call  # others think, or write, for ever
        assert all(name == "get_weather" for name, _ in found)
        assert all(given["unit"] in ("c", "f") for _, given in found)
        assert "tool_call" not in answer_text(events)
