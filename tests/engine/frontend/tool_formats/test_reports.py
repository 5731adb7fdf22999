"""Outputs that other programs were reported to parse wrongly, each rebuilt small."""

import json

import pytest

from engine.frontend.tool_formats.parser import CallDelta, TextDelta, ToolCallParser
from engine.messages import Tool
from tool_outputs import FORMATS

BAR = "\uff5c"
SCHEMA = '{"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}'
TOOLS = (Tool("write", "", SCHEMA), Tool("fees", "", '{"type": "object"}'))
REPORTS = {
    # A brace in a text ends the call (ollama 12017).
    "brace in a text": (
        "llama-3",
        '{"name": "write", "parameters": {"text": "}A"}}',
        [("write", {"text": "}A"})],
    ),
    # Calls behind a semicolon fail (lemonade 1562).
    "calls with semicolons": (
        "llama-3",
        '{"name": "fees", "parameters": {}}; {"name": "fees", "parameters": {}}',
        [("fees", {}), ("fees", {})],
    ),
    # An element closed by its parent fails as XML (ollama 17276).
    "parameter closed by its function": (
        "qwen3-xml",
        "<tool_call>\n<function=write>\n<parameter=text>\nif a < b & c:\n</function>\n</tool_call>",
        [("write", {"text": "if a < b & c:"})],
    ),
    # The end marker within a text ends the call (ollama 16075).
    "end marker in a text": (
        "gemma-4",
        '<|tool_call>call:write{text:<|"|>ends with <tool_call|> and }<|"|>,n:3}<tool_call|>',
        [("write", {"text": "ends with <tool_call|> and }", "n": 3})],
    ),
    # A call whose markers come in one piece is dropped (vllm 48020).
    "begin and end in one piece": (
        "deepseek-v3.1",
        f"<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>write<{BAR}tool▁sep{BAR}>"
        f'{{"n": 1}}<{BAR}tool▁call▁end{BAR}><{BAR}tool▁calls▁end{BAR}>',
        [("write", {"n": 1})],
    ),
    # A value without its opening tag leaves no arguments (vllm 49248).
    "value without its opening tag": (
        "glm-4.7",
        "<tool_call>write<arg_key>text</arg_key>how many</arg_value></tool_call>",
        [("write", {"text": "how many"})],
    ),
    # Arguments in a list, or with a bracket too many, fail the request (ollama 17638).
    "arguments in a list": (
        "gpt-oss",
        '<|channel|>commentary to=functions.write <|constrain|>json<|message|>[{"n": 1}]',
        [("write", {"n": 1})],
    ),
    "a bracket too many": (
        "gpt-oss",
        '<|channel|>commentary to=functions.write <|constrain|>json<|message|>{"n": 1}]',
        [("write", {"n": 1})],
    ),
    # Calls as Python writes them stay text (lmstudio 1979).
    "quotes of Python": (
        "lfm2",
        "<|tool_call_start|>[write(text='it\\'s', n=2)]<|tool_call_end|>",
        [("write", {"text": "it's", "n": 2})],
    ),
    # The end of what is around a call stays in the text (openlumara 92).
    "end of what is around a call": (
        "qwen3-xml",
        "<tool_call>\n<function=write>\n<parameter=n>\n4\n</parameter>\n</function>\n</tool_call>",
        [("write", {"n": 4})],
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_reported_outputs_are_read(name: str) -> None:
    form, text, wanted = REPORTS[name]
    for length in (1, 3, 7, len(text)):
        parser = ToolCallParser(FORMATS[form], TOOLS)
        pieces = [text[at : at + length] for at in range(0, len(text), length)]
        deltas = [delta for piece in pieces for delta in parser.push(piece)] + parser.finish()
        calls = [
            (one.name, json.loads(one.arguments)) for one in deltas if isinstance(one, CallDelta)
        ]
        assert calls == wanted
        assert not [one for one in deltas if isinstance(one, TextDelta)]
