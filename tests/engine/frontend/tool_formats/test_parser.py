"""ToolCallParser with texts that no template writes: broken, mixed, and in pieces of any length."""

import json
import random
from typing import Any

import pytest

import tool_templates
from engine.frontend.template import ChatTemplate
from engine.frontend.tool_formats.formats import ToolFormat
from engine.frontend.tool_formats.parser import CallDelta, Delta, TextDelta, ToolCallParser
from engine.frontend.tool_formats.stage import ToolCallEvents, ToolCallStage
from engine.messages import Finished, FinishReason, Text, Tool, ToolCallDelta
from tool_outputs import FORMATS

TOOLS = (
    Tool("f", "", '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}'),
    Tool("get", "", '{"type": "object", "properties": {"q": {"type": "string"}}}'),
)
WORDS = (
    *("f", "get", "a", "b", "q", "1", "true", "null", "{", "}", "[", "]", "(", ")", '"', "'", ":"),
    *(",", "=", "\n", " ", "\\", "<", ">", "</", "text", "é😀", '{"a": 1}', '"name"', '"f"'),
    *('{"name": "f", "arguments": {"a": 1}}', '{"name": "f", "parameters": {"a": 1}}', "[f(a=1)]"),
    *("to=functions.f", "commentary", "analysis", "final", " ", ";", "call:f{a:1}", "functions."),
)


def pieces_of(form: ToolFormat) -> list[str]:
    """What a model may write in a wrong order: the markers of a format, and parts of them."""
    markers = [*form.markers, *form.begins, form.begin, form.end, form.name_end, form.value_end]
    parts = [one[: len(one) // 2] for one in markers]
    return [one for one in (*markers, *markers, *parts, form.key_begin, form.key_end) if one]


def read(form: ToolFormat, pieces: list[str], *, cut: bool = False) -> tuple[str, list[object]]:
    parser = ToolCallParser(form, TOOLS)
    deltas: list[Delta] = []
    for piece in pieces:
        deltas += parser.push(piece)
    deltas += parser.finish(cut=cut)
    calls = [(one.name, one.arguments) for one in deltas if isinstance(one, CallDelta)]
    text = "".join(one.text for one in deltas if isinstance(one, TextDelta))
    return text, list(calls)


@pytest.mark.parametrize("name", FORMATS)
def test_any_text_is_read_alike_in_any_pieces(name: str) -> None:
    form, draw = FORMATS[name], random.Random(name)
    words = [*WORDS, *pieces_of(form) * 3]
    for _ in range(150):
        text = "".join(draw.choices(words, k=draw.randint(1, 24)))
        cut = draw.random() < 0.3
        whole = read(form, [text], cut=cut)
        assert read(form, list(text), cut=cut) == whole, text
        places = sorted(draw.choices(range(len(text) + 1), k=3))
        starts, ends = [0, *places], [*places, len(text)]
        some = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        assert read(form, some, cut=cut) == whole, (text, some)
        for _, arguments in whole[1]:  # type: ignore[misc]
            assert isinstance(json.loads(arguments), dict)  # type: ignore[has-type]


@pytest.mark.parametrize("name", sorted(tool_templates.TEMPLATES.keys() - {"gpt-oss"}))
def test_a_long_call_is_not_read_again_for_every_piece(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ChatTemplate(tool_templates.TEMPLATES[name], bos="", eos="")
    value = "def f(x):\n    return {x: [1, 2]}  # <b>\n" * 1200
    call = {"type": "function", "id": "functions.get:0"}
    call["function"] = {"name": "get", "arguments": {"q": value}}  # type: ignore[assignment]
    if made.tool_style.string_arguments:
        call["function"]["arguments"] = json.dumps({"q": value})  # type: ignore[index]
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    text = made.render_messages([answer], {"tools": None, "add_generation_prompt": False})
    assert text is not None
    for start in ("<|assistant|>", "<|start|>assistant"):
        text = text.removeprefix(start)
    for end in ("<|call|>", "<|end|>"):
        text = text.removesuffix(end)
    pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
    form, reads, real = made.tool_format, [0], ToolFormat.read

    def counted(*given: Any, **options: Any) -> Any:
        reads[0] += 1
        return real(*given, **options)

    monkeypatch.setattr(ToolFormat, "read", counted)
    found = read(form, pieces)
    assert [json.loads(one[1]) for one in found[1]] == [{"q": value}]  # type: ignore[index]
    assert reads[0] < 300  # for 9,000 pieces: those of its beginning


def test_numbers_and_texts_follow_the_types_of_the_schema() -> None:
    properties = {
        "zip": {"type": "string"},
        "count": {"type": ["integer", "null"]},
        "flag": {"anyOf": [{"type": "boolean"}, {"type": "string"}]},
        "list": {"$ref": "#/$defs/list"},
    }
    defs = {"list": {"type": "array", "items": {"type": "integer"}}}
    schema = {"type": "object", "properties": properties, "$defs": defs}
    arguments = {"zip": "02139", "count": "7", "flag": "True", "list": "[1, 2]", "other": "x y"}
    inner = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items()
    )
    text = f"<tool_call>\n<function=g>\n{inner}</function>\n</tool_call>"
    parser = ToolCallParser(FORMATS["qwen3-xml"], [Tool("g", "", json.dumps(schema))])
    (call,) = [one for one in parser.push(text) if isinstance(one, CallDelta)]
    wanted = {"zip": "02139", "count": 7, "flag": True, "list": [1, 2], "other": "x y"}
    assert json.loads(call.arguments) == wanted


@pytest.mark.parametrize("value", ["5", "null", "[1]", '<|"|>text<|"|>'])
def test_arguments_without_braces_are_text(value: str) -> None:
    text = f"<|tool_call>call:f {value}<tool_call|>"
    assert read(FORMATS["gemma-4"], [text]) == (text, [])


def test_a_call_in_thoughts_counts_only_if_these_never_end() -> None:
    form = FORMATS["hermes"]
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'

    def run(*pieces: tuple[str, str]) -> list[Delta]:
        stage = ToolCallStage(form, TOOLS)
        deltas: list[Delta] = []
        for kind, text in pieces:
            for letter in text:
                deltas += stage.thought(letter) if kind == "thought" else stage.text(letter)
        return deltas + stage.finish()

    def thought(deltas: list[Delta]) -> str:
        texts = [one for one in deltas if isinstance(one, TextDelta)]
        return "".join(one.text for one in texts if one.is_thought)

    ended = run(("thought", f"I could\n{call} maybe"), ("text", "\n\nNo."))
    assert thought(ended) == f"I could\n{call} maybe"
    assert not any(isinstance(one, CallDelta) for one in ended)
    open_ended = run(("thought", f"I call.\n{call}"))
    assert thought(open_ended) == "I call."
    assert [one.name for one in open_ended if isinstance(one, CallDelta)] == ["f"]
    none = run(("thought", "I write <tool_call> and stop."))
    assert thought(none) == "I write <tool_call> and stop."


@pytest.mark.parametrize("reason", FinishReason)
def test_an_answer_that_ends_with_calls_says_so(reason: FinishReason) -> None:
    text = 'So:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    events = ToolCallEvents(FORMATS["hermes"], TOOLS)
    made = [one for at in text for one in events.of(Text(7, at, 1, 2))]
    made += events.of(Finished(7, reason, 1, 0, 30, 0.1, 0.1, 31))
    calls = [one for one in made if isinstance(one, ToolCallDelta)]
    assert [(one.request, one.index, one.name, one.arguments) for one in calls] == [
        (7, 0, "f", '{"a": 1}')
    ]
    assert "".join(one.text for one in made if isinstance(one, Text)) == "So:"
    assert len([one for one in made if isinstance(one, Text)]) >= len(text) - 3  # progress goes on
    last = made[-1]
    assert isinstance(last, Finished)
    ends = reason in (FinishReason.END, FinishReason.STOP)
    assert last.reason is (FinishReason.TOOL_CALLS if ends else reason)
