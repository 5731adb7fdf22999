"""Calls that a grammar writes, given out while they grow: as the whole calls are, in any pieces."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

import tool_templates
from engine.frontend.template import ChatTemplate
from engine.frontend.tool_formats.formats import Kind, ToolFormat
from engine.frontend.tool_formats.grammar import tool_constraint
from engine.frontend.tool_formats.parser import CallDelta, Delta, TextDelta, ToolCallParser
from engine.frontend.tool_formats.stage import ToolCallEvents
from engine.messages import Finished, FinishReason, Text, Tool, ToolCallDelta, ToolChoice
from tool_outputs import FORMATS

WRITE = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "lines": {"type": "integer"},
        "flag": {"type": ["boolean", "null"]},
        "parts": {"type": "array", "items": {"type": "string"}},
        "unit": {"enum": ["c", "f"]},
        "any": {},
    },
    "required": ["path", "text"],
}
TOOLS = (
    Tool("write", "", json.dumps(WRITE)),
    Tool("write_file", "", json.dumps(WRITE)),
    Tool("now", "", '{"type": "object", "properties": {}}'),
)
WORDS = (
    "a",
    "é😀",
    " ",
    "\n",
    "\n\n",
    '"',
    "\\",
    "\\n",
    "'",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    "<",
)
WORDS += ("</", "<|", "\n</", "x = 1\n", "=", "path", "text", ">", "\t", "\u2028", "  # <b>")


class Writer:
    """Writes texts that the rules of a constraint allow, by chance."""

    def __init__(self, form: ToolFormat, draw: random.Random) -> None:
        constraint = tool_constraint(form, TOOLS, ToolChoice.REQUIRED, parallel=True)
        assert constraint is not None
        given = json.loads(constraint.text)
        self._rules, self._schemas, self._draw = given["rules"], given["schemas"], draw
        self._words = [*WORDS, *(one[: len(one) // 2] for one in form.markers)]

    def write(self) -> str:
        return "".join(map(self._item, self._rules["start"][0]))

    def _item(self, item: dict[str, Any]) -> str:
        match item:
            case {"text": str(text)}:
                return text
            case {"rule": str(name)}:
                return "".join(map(self._item, self._draw.choice(self._rules[name])))
            case {"repeat": list(items), "most": int(most)}:
                count = self._draw.randint(0, min(most, 2))  # few calls
                return "".join(map(self._item, items * count))
            case {"schema": int(number)}:
                return json.dumps(self._value(self._schemas[number]), ensure_ascii=self._odd())
            case {"until": str(end)}:
                return self._text(end) + end
            case _:
                return "key:" if "A-Z" in item["pattern"] else "\n"

    def _odd(self) -> bool:
        return self._draw.random() < 0.5

    def _text(self, end: str = "\x00") -> str:
        text = "".join(self._draw.choices(self._words, k=self._draw.randint(0, 12)))
        return text if (text + end).find(end) == len(text) else ""

    def _value(self, schema: Any) -> Any:
        kind = schema.get("type", "string")
        kind = self._draw.choice(kind) if isinstance(kind, list) else kind
        if "enum" in schema:
            return self._draw.choice(schema["enum"])
        if kind == "object":
            properties, required = schema.get("properties", {}), schema.get("required", ())
            names = [one for one in properties if one in required or self._odd()]
            return {name: self._value(properties[name]) for name in names}
        if kind == "array":
            return [self._value(schema["items"]) for _ in range(self._draw.randint(0, 3))]
        number = self._draw.randint(-9, 9999)
        values = {"integer": number, "number": number / 2, "boolean": self._odd(), "null": None}
        return values.get(kind, self._text())


def joined(deltas: Sequence[Delta]) -> tuple[str, list[list[str]]]:
    """The text and the calls, whose deltas have what clients need."""
    calls: list[list[str]] = []
    for one in deltas:
        if isinstance(one, CallDelta) and one.index == len(calls):
            assert one.id
            calls.append([one.name, one.arguments])
        elif isinstance(one, CallDelta):
            assert (one.id, one.name) == ("", "")
            assert one.arguments
            calls[one.index][1] += one.arguments
    return "".join(one.text for one in deltas if isinstance(one, TextDelta)), calls


def read(
    form: ToolFormat, pieces: Sequence[str], *, constrained: bool, cut: bool = False
) -> tuple[str, list[list[str]]]:
    parser = ToolCallParser(form, TOOLS, constrained=constrained)
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    return joined([*deltas, *parser.finish(cut=cut)])


@pytest.mark.parametrize("name", FORMATS)
def test_pieces_of_calls_joined_are_the_whole_calls(name: str) -> None:
    form, draw = FORMATS[name], random.Random(name)
    writer = Writer(form, draw)
    for _ in range(60):
        text = writer.write()
        whole = read(form, [text], constrained=False)
        assert whole[1], text
        places = sorted(draw.choices(range(len(text) + 1), k=4))
        some = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        for pieces in ([text], list(text), some):
            assert read(form, pieces, constrained=True) == whole, (text, pieces)


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_cut_by_the_limit_has_the_beginning_of_its_arguments(name: str) -> None:
    form, draw = FORMATS[name], random.Random(name)
    writer = Writer(form, draw)
    for _ in range(20):
        text = writer.write()
        _, whole = read(form, [text], constrained=False)
        at = draw.randrange(len(text))
        alike = read(form, list(text[:at]), constrained=True, cut=True)
        assert read(form, [text[:at]], constrained=True, cut=True) == alike
        assert alike[0].strip() in ("", *(one[:2] for one in form.begins), "<")
        for part, call in zip(alike[1], whole, strict=False):
            assert part[0] == call[0]
            assert call[1].startswith(part[1])


@pytest.mark.parametrize("name", tool_templates.TEMPLATES)
def test_a_long_text_comes_in_pieces_behind_its_name(name: str) -> None:
    form = ChatTemplate(tool_templates.TEMPLATES[name], bos="", eos="").tool_format
    value = "def f(x):\n    return {x: [1, 2]}  # <b>\n" * 20
    lines = {"path": "a.py", "text": value}
    text = _call(form, lines)
    parser = ToolCallParser(form, TOOLS, constrained=True)
    begun, told = "", 0
    for at, letter in enumerate(text):
        for delta in parser.push(letter):
            assert isinstance(delta, CallDelta)
            begun, told = begun + delta.arguments, told + 1
        if at == len(text) // 2:
            assert len(begun) > len(text) // 4
    parser.finish()
    assert json.loads(begun) == lines
    assert told > 100


def _call(form: ToolFormat, arguments: dict[str, str]) -> str:
    """A call of `write` as the grammar has it, with texts as arguments."""
    quoted = json.dumps(arguments)
    head = form.section[0].lstrip() + form.begin.lstrip()
    end = form.end + form.section[1]
    if form.is_list or form.kind is Kind.PYTHON:
        head, end = head + "[", "]" + form.end
    name = form.heads(["write"])["write"]
    pairs = list(arguments.items())
    match form.kind:
        case Kind.JSON:
            return f"{head}{name}{quoted}}}{end}"
        case Kind.NAMED:
            return f"{head}{name}{quoted}{end}"
        case Kind.HARMONY:
            start = "<|channel|>commentary to=functions.write <|constrain|>json<|message|>"
            return start + quoted
        case Kind.PYTHON:
            inner = ", ".join(f"{key}={json.dumps(value)}" for key, value in pairs)
            return f"{head}{name}{inner}){end}"
        case Kind.GEMMA:
            inner = ",".join(f'{key}:<|"|>{value}<|"|>' for key, value in pairs)
            return f"{head}{name}{inner}}}{end}"
        case Kind.TAGGED:
            inner = form.key_sep.join(
                f"{form.key_begin}{key}{form.key_end}{value}{form.value_end}"
                for key, value in pairs
            )
            return f"{head}{name}{inner}{end.lstrip()}"


def test_a_call_in_another_form_than_the_grammar_is_held_until_it_is_whole() -> None:
    form = FORMATS["hermes"]
    for text in (
        '<tool_call> {"name": "write", "arguments": {"path": "a", "text": "b"}}</tool_call>',
        '<tool_call>\n{"name": "other", "arguments": {"a": 1}}\n</tool_call>',
        '<tool_call>\n{"arguments": {"a": 1}, "name": "write"}\n</tool_call>',
    ):
        parser = ToolCallParser(form, TOOLS, constrained=True)
        assert not [one for letter in text[:-14] for one in parser.push(letter)]
        _, ((_, arguments),) = joined([*parser.push(text[-14:]), *parser.finish()])
        assert json.loads(arguments)


@pytest.mark.parametrize("reason", FinishReason)
def test_an_answer_that_ends_within_a_call_has_not_ended_with_calls(reason: FinishReason) -> None:
    text = 'So:\n<tool_call>\n{"name": "write", "arguments": {"path": "a", "te'
    events = ToolCallEvents(FORMATS["hermes"], TOOLS, constrained=True)
    made = [one for at in text for one in events.of(Text(7, at, 1, 2))]
    made += events.of(Finished(7, reason, 1, 0, 30, 0.1, 0.1, 31))
    calls = [one for one in made if isinstance(one, ToolCallDelta)]
    assert "".join(one.arguments for one in calls) == '{"path": "a", "te'
    assert (calls[0].index, calls[0].name) == (0, "write")
    assert "".join(one.text for one in made if isinstance(one, Text)) == "So:"
    last = made[-1]
    assert isinstance(last, Finished)
    assert last.reason is reason
