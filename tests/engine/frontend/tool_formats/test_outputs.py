"""What models of each family write where they may call a tool: calls are calls, all else is text."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

import tool_templates
from engine.frontend.template import ChatTemplate
from engine.frontend.tool_formats.parser import CallDelta, TextDelta, ToolCallParser
from engine.messages import Role, Tool, ToolCall, Turn
from tool_outputs import FORMATS

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}}'
TOOLS = (
    Tool("weather", "Weather", SCHEMA),
    Tool("time", "Time", '{"type": "object"}'),
    Tool("_look", "Look", '{"type": "object"}'),
)
Found = tuple[str, list[tuple[str, object]]]
PARIS, CHINA = ("weather", {"city": "Paris"}), ("weather", {"city": 'Grüße {"東京"} <b> 🚀'})
TIME: tuple[str, object] = ("time", {})
FAMILIES = sorted(tool_templates.TEMPLATES.keys() - {"gpt-oss"})
# Of formats whose calls have no marker.
BARE_JSON = {
    "as the template has it": ('{"name": "weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    "compact": ('{"name":"weather","parameters":{"city":"Paris"}}', "", [PARIS]),
    "with a type": (
        '{"type": "function", "name": "weather", "parameters": {"city": "Paris"}}',
        "",
        [PARIS],
    ),
    "behind a marker": ('<|python_tag|>{"name": "time", "parameters": {}}', "", [TIME]),
    "in a list": ('[{"name": "time", "parameters": {}}]', "", [TIME]),
    "two in a row": (
        '{"name": "time", "parameters": {}}; {"name": "weather", "parameters": {"city": "Paris"}}',
        "",
        [TIME, PARIS],
    ),
    # Text behind a call is lost (ollama 17323).
    "before text": ('{"name": "time", "parameters": {}}\n\nI wait.', "\n\nI wait.", [TIME]),
    "on the last lines": (
        'I look.\n\n{"name": "time", "parameters": {}}\n{"name": "time", "parameters": {}}\n',
        "I look.",
        [TIME, TIME],
    ),
    "an example": ('So:\n{"name": "time", "parameters": {}}\nasks for it.', None, []),
    "an example in code": ('```json\n{"name": "time", "parameters": {}}\n```', None, []),
    "an example in a line": ('Write {"name": "time", "parameters": {}}', None, []),
    "of no known tool": ('{"name": "news", "parameters": {}}', None, []),
    "a person": ('{"name": "Ann", "parameters": {"age": 3}}', None, []),
    "a name alone": ('{"name": "time"}', None, []),
    "other JSON": ('{"id": 1, "items": [{"name": "time"}]}', None, []),
    "a schema": ('{"type": "object", "properties": {}}', None, []),
    # JSON that is no call is deleted (sglang 35562).
    "nothing": ("{}", None, []),
    "JSON before text": ('{"a": 1} is a dict', None, []),
    "a note": ("[1] As {the source} says.", None, []),
    "code": ("{ int x = 1;\n", None, []),
    "not whole": ('{"name": "weather", "parameters": {"city": "Par', None, []),
}
BARE_PYTHON = {
    "as the template has it": ('[weather(city="Paris")]', "", [PARIS]),
    "two": ('[time(), weather(city="Paris")]', "", [TIME, PARIS]),
    "other quotes": ("[weather(city='Paris')]", "", [PARIS]),
    # A bracket in a text ends the list (sglang 38869).
    "brackets in a text": ('[weather(city="P]{\'(")]', "", [("weather", {"city": "P]{'("})]),
    # Streamed it is a call, and else text (vllm 56840).
    "underscores": ("[_look(_id='a')] I look.", " I look.", [("_look", {"_id": "a"})]),
    "between markers": ("<|python_start|>[time()]<|python_end|>", "", [TIME]),
    "before text": ("[time()] I wait.", " I wait.", [TIME]),
    "on the last line": ("I look.\n\n[time()]", "I look.", [TIME]),
    "two lists": ('[time()]\n[weather(city="Paris")]', "", [TIME, PARIS]),
    "a list of numbers": ("[1, 2, 3]", None, []),
    "a list of texts": ('["time()"]', None, []),
    "a link": ("[time](https://example.org) tells it.", None, []),
    "a task": ("[ ] Buy milk\n[x] Call\n[time()]\nDone.", None, []),
    "a comprehension": ("[x for x in time()]", None, []),
    "a list with more": ("[time(), 3]", None, []),
    "without names": ('[weather("Paris")]', None, []),
    "of no known tool": ("[news(a=1)]", None, []),
    "without brackets": ("time()", None, []),
    "in a sentence": ("Write [time()] for it.", None, []),
    "JSON": ('{"name": "time", "parameters": {}}', None, []),
    "not whole": ('[weather(city="Par', None, []),
}


def read(parser: ToolCallParser, text: str, length: int, *, cut: bool = False) -> Found:
    """The text and the calls of an output in pieces of a length."""
    parts = [text[at : at + length] for at in range(0, len(text), length)]
    deltas = [delta for part in parts for delta in parser.push(part)] + parser.finish(cut=cut)
    said = "".join(one.text for one in deltas if isinstance(one, TextDelta))
    calls = [(one.name, json.loads(one.arguments)) for one in deltas if isinstance(one, CallDelta)]
    return said, calls


@pytest.mark.parametrize(
    ("form", "name"),
    [("llama-3", one) for one in BARE_JSON] + [("llama-4", one) for one in BARE_PYTHON],
)
def test_calls_without_a_marker(form: str, name: str) -> None:
    text, said, calls = (BARE_JSON if form == "llama-3" else BARE_PYTHON)[name]
    for length in (1, 2, 7, len(text)):
        found = read(ToolCallParser(FORMATS[form], TOOLS), text, length)
        assert found == (text if said is None else said, calls)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("llama-3", '{"name": "Ann", '),
        ("llama-3", '{"id": '),
        ("llama-3", '[{"a": '),
        ("llama-3", "[see "),
        ("llama-3", 'So:\n{"type": "object", '),
        ("llama-4", "[1, "),
        ("llama-4", "[weather] "),
        ("mistral-v3", "[1, "),
    ],
)
def test_text_that_can_be_no_call_is_not_held(form: str, text: str) -> None:
    parser = ToolCallParser(FORMATS[form], TOOLS)
    deltas = [delta for letter in f"{text}1, 2" for delta in parser.push(letter)]
    assert "".join(one.text for one in deltas if isinstance(one, TextDelta)).startswith(text)


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_of_each_family(name: str) -> None:
    template = ChatTemplate(tool_templates.TEMPLATES[name], bos="", eos="")
    form = template.tool_format
    question = Turn(Role.USER, "Well?")
    prompt = template.render((question,), tools=TOOLS)

    def written(*calls: tuple[str, object]) -> str:
        made = [
            ToolCall(f"functions.{tool}:{at}", tool, json.dumps(given, ensure_ascii=False))
            for at, (tool, given) in enumerate(calls)
        ]
        turns = (question, Turn(Role.ASSISTANT, tuple(made)))
        text = template.render(turns, tools=TOOLS, add_generation_prompt=False)
        return text.removeprefix(prompt).removesuffix("<|end|>").lstrip()

    def check(text: str, said: str, calls: Sequence[tuple[str, object]], cut: bool = False) -> None:
        for length in (1, 3, 11, len(text)):
            found = read(ToolCallParser(form, TOOLS), text, length, cut=cut)
            assert (found[0].strip(), found[1]) == (said, list(calls)), text

    one = written(PARIS)
    check(one, "", [PARIS])
    check(f"I look.{form.lead or chr(10)}{one}", "I look.", [PARIS])
    check(f"{one}\n\nI wait.", "I wait.", [PARIS])  # sglang 40739: the text is lost
    check(written(PARIS, TIME), "", [PARIS, TIME])
    check(f"{one}\nAnd:\n{one}", "And:", [PARIS, PARIS])
    check(written(CHINA), "", [CHINA])
    check(written(TIME), "", [TIME])
    check(f"I look.\n{one[: len(one) * 2 // 3]}", "I look.", [], cut=True)
    for text in ("Use {x}, [1], <b> and a < b: f(x).", "{1, 2} is a set.", "[1] says so."):
        check(text, text, [])
    if not form.at_start:
        begun = f"It begins with {form.begins[0][:-1]}"
        check(begun, begun, [])
