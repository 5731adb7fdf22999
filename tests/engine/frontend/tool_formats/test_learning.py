"""Formats of tool calls learned from templates: their calls are read back, whole and in pieces."""

import json

import pytest

import tool_templates
from engine.frontend.template import ChatTemplate
from engine.frontend.tool_formats.formats import Kind, ToolFormat
from engine.frontend.tool_formats.parser import CallDelta, TextDelta, ToolCallParser
from engine.frontend.tool_formats.tables import GENERIC
from engine.messages import Role, TextPart, Tool, ToolCall, ToolResult, Turn

TOOLS = (
    Tool(
        "write_file",
        "Write a file",
        json.dumps(
            {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "text": {"type": "string"},
                    "lines": {"type": "integer"},
                },
                "required": ["path"],
            }
        ),
    ),
    Tool("get_time", "Time"),
)
ARGUMENTS = {"path": "a/b.txt", "text": 'Zürich "quoted", {x} & [y]', "lines": 12}
CALLS = (
    ToolCall("functions.write_file:0", "write_file", json.dumps(ARGUMENTS)),
    ToolCall("functions.write_file:1", "write_file", '{"path": "c.txt"}'),
)
KINDS = {
    Kind.JSON: {"hermes", "mistral-v3", "llama-3", "cohere", "phi-4"},
    Kind.NAMED: {"kimi-k2", "deepseek-v3", "deepseek-v3.1", "mistral-v11", "function-tags"},
    Kind.TAGGED: {"qwen3-xml", "glm-4.5", "glm-4.7", "kimi-k3", "deepseek-v3.2", "minimax"},
    Kind.PYTHON: {"lfm2", "llama-4"},
    Kind.GEMMA: {"gemma-4"},
    Kind.HARMONY: {"gpt-oss"},
}


def template(name: str) -> ChatTemplate:
    return ChatTemplate(tool_templates.TEMPLATES[name], bos="", eos="")


def written(made: ChatTemplate, calls: tuple[ToolCall, ...]) -> str:
    """The calls as the template writes them in an answer."""
    question = Turn(Role.USER, "Well?")
    turns = (question, Turn(Role.ASSISTANT, calls))
    prompt = made.render((question,), tools=TOOLS)
    text = made.render(turns, tools=TOOLS, add_generation_prompt=False).removeprefix(prompt)
    for end in ("<|call|>", "<|end|>"):
        text = text.removesuffix(end)
    return text


def read(form: ToolFormat, pieces: list[str]) -> tuple[str, list[tuple[str, object]]]:
    parser = ToolCallParser(form, TOOLS)
    deltas = [delta for piece in pieces for delta in parser.push(piece)] + parser.finish()
    text = "".join(one.text for one in deltas if isinstance(one, TextDelta))
    calls = [(one.name, json.loads(one.arguments)) for one in deltas if isinstance(one, CallDelta)]
    return text, calls


@pytest.mark.parametrize("name", tool_templates.TEMPLATES)
def test_calls_of_a_template_are_read_back(name: str) -> None:
    made = template(name)
    assert made.tool_style.is_native
    form = made.tool_format
    assert name in KINDS[form.kind]
    text = written(made, CALLS)
    wanted = [("write_file", ARGUMENTS), ("write_file", {"path": "c.txt"})]
    for pieces in ([text], list(text), [text[:17], text[17:40], text[40:]]):
        assert read(form, pieces) == ("", wanted)


@pytest.mark.parametrize("name", sorted(tool_templates.TEMPLATES.keys() - {"gpt-oss"}))
def test_text_before_calls_stays_text(name: str) -> None:
    form = template(name).tool_format
    if form.at_start:
        return
    text = written(template(name), CALLS[:1])
    assert read(form, list("I look." + text)) == ("I look.", [("write_file", ARGUMENTS)])


@pytest.mark.parametrize("name", tool_templates.TEMPLATES)
def test_a_plain_answer_stays_as_it_is(name: str) -> None:
    form = template(name).tool_format
    text = 'Use a < b and c > d, [1, 2], {"a": 1} or `<tool>`.\n\nDone <'
    assert read(form, list(text)) == (text, [])


@pytest.mark.parametrize("name", tool_templates.TEMPLATES)
def test_a_call_that_a_limit_cuts_is_dropped(name: str) -> None:
    made = template(name)
    text = written(made, CALLS[:1])
    for length in range(2, text.index("{x}")):
        parser = ToolCallParser(made.tool_format, TOOLS)
        deltas = [*parser.push(text[:length]), *parser.finish(cut=True)]
        assert not any(isinstance(one, CallDelta) for one in deltas)


def test_a_template_without_tools_has_the_generic_format() -> None:
    made = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", bos="", eos="")
    assert made.tool_format == GENERIC


def test_ids_in_place_of_names_are_made_where_a_client_has_others() -> None:
    made = template("kimi-k2")
    calls = (ToolCall("call_1", "get_time", "{}"), ToolCall("call_2", "get_time", "{}"))
    turns = (
        Turn(Role.USER, "Well?"),
        Turn(Role.ASSISTANT, (TextPart("I look."), *calls)),
        Turn(Role.TOOL, (ToolResult("call_1", "", "noon"),)),
    )
    prompt = made.render(turns, tools=TOOLS)
    assert "functions.get_time:0<|tool_call_argument_begin|>" in prompt
    assert "functions.get_time:1<|tool_call_argument_begin|>" in prompt
