"""Tools, calls and results in prompts: recorded templates that know them, and others."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.frontend.template import ChatTemplate
from engine.messages import (
    ReasoningPart,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "chat_templates.json"
ROWS = {row["name"]: row for row in json.loads(GOLDEN.read_text(encoding="utf-8"))["rows"]}
WEATHER = Tool(
    "get_weather",
    "Weather of a city",
    '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}',
)
CALL = ToolCall("call_0123456789", "get_weather", '{"city": "Zürich"}')
ASKED = (
    Turn(Role.SYSTEM, "Be brief."),
    Turn(Role.USER, "How is it in Zürich?"),
    Turn(Role.ASSISTANT, (TextPart("I look."), CALL)),
    Turn(Role.TOOL, (ToolResult(CALL.id, "", "20 degrees"),)),
)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def golden(name: str) -> ChatTemplate:
    row = ROWS[name]
    return ChatTemplate(row["template"], bos=row["bos"], eos=row["eos"])


NATIVE = {
    "Qwen-Qwen3-0.6B": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>',
    "Qwen3-Coder": "<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n</function>",
    "meta-llama-Llama-3.1-8B-Instruct": '{"name": "get_weather", "parameters": {"city": "Zürich"}}',
    "mistralai-Ministral-3-14B-Reasoning-2512": '[TOOL_CALLS]get_weather[ARGS]{"city": "Zürich"}',
    "mistralai-Mistral-Nemo-Instruct-2407": '[{"name": "get_weather", "arguments": {"city": "Zürich"}, "id":',
}


@pytest.mark.parametrize("name", NATIVE)
def test_a_template_that_knows_tools_writes_them(name: str) -> None:
    template = golden(name)
    assert template.tool_style.is_native
    prompt = template.render(ASKED, tools=[WEATHER])
    assert NATIVE[name] in prompt
    assert "Weather of a city" in prompt
    assert "20 degrees" in prompt.partition(NATIVE[name])[2]
    assert "Be brief." in prompt


def test_ids_that_a_template_refuses_are_replaced_by_the_same_short_ones() -> None:
    template = golden("mistralai-Mistral-Nemo-Instruct-2407")
    prompt = template.render(ASKED, tools=[WEATHER])
    assert CALL.id not in prompt
    short = template.tool_style.id(CALL.id)
    assert len(short) == 9
    assert prompt.count(short) == 2
    assert template.tool_style.id(short) == short


@pytest.mark.parametrize("name", ["google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct", ""])
def test_a_template_that_knows_no_tools_has_them_as_text(name: str) -> None:
    template = golden(name) if name else ChatTemplate(CHATML, bos="", eos="")
    assert not template.tool_style.is_native
    prompt = template.render((*ASKED, Turn(Role.USER, "Thanks!")), tools=[WEATHER])
    described, written, rest = prompt.partition("I look.")
    assert "Be brief." in described
    assert '"description": "Weather of a city"' in described
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
    assert rest.startswith("\n" + call)
    result = '<tool_response>\n{"name": "get_weather", "content": "20 degrees"}\n</tool_response>'
    assert f"{result}\n\nThanks!" in rest
    assert written


def test_several_results_of_a_turn_are_messages_of_their_own() -> None:
    second = ToolCall("call_2", "get_weather", '{"city": "Bern"}')
    results = (ToolResult(CALL.id, "", "20"), ToolResult("call_2", "get_weather", "18"))
    turns = (
        Turn(Role.USER, "Both?"),
        Turn(Role.ASSISTANT, (CALL, second)),
        Turn(Role.TOOL, results),
    )
    prompt = golden("NousResearch-Hermes-3-Llama-3.1-8B-tool_use").render(turns, tools=[WEATHER])
    assert prompt.index("Zürich") < prompt.index("Bern") < prompt.index("<tool_response>\n20")
    assert "<tool_response>\n18" in prompt


def test_thoughts_stay_beside_calls() -> None:
    answer = Turn(Role.ASSISTANT, (ReasoningPart("Look it up."), TextPart("I look."), CALL))
    assert answer.text == "<think>\nLook it up.\n</think>\n\nI look."
    turns = (Turn(Role.USER, "Well?"), answer, Turn(Role.TOOL, (ToolResult(CALL.id, "", "20"),)))
    prompt = golden("Qwen-Qwen3-0.6B").render(turns, tools=[WEATHER])
    assert "<think>\nLook it up.\n</think>\n\nI look.\n<tool_call>" in prompt


def test_a_turn_that_ends_with_calls_is_not_continued() -> None:
    template = golden("Qwen-Qwen3-0.6B")
    prompt = template.render_answer(ASKED[:3], tools=[WEATHER])
    assert not prompt.continued
    assert prompt.text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("value", [True, False])
def test_variables_reach_the_template(value: bool) -> None:
    source = (
        CHATML + "{{ style }}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"
    )
    template = ChatTemplate(source, bos="", eos="")
    variables: dict[str, Any] = {"style": "terse", "enable_thinking": value, "messages": []}
    prompt = template.render((Turn(Role.USER, "Well?"),), variables=variables)
    assert "Well?" in prompt
    assert prompt.endswith(f"terse{value}")


def test_results_may_be_in_a_field_of_the_message_with_their_calls() -> None:
    source = (
        "{% if tools %}{{ tools | tojson }}{% endif %}"
        "{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}call:{{ c.function.name }}"
        "{{ c.function.arguments | tojson }}{% endfor %}"
        "{% for r in m.tool_responses or [] %}response:{{ r.name }}={{ r.response }}"
        "{% endfor %}<turn|>{% endfor %}{% if add_generation_prompt %}<|turn>model{% endif %}"
    )
    template = ChatTemplate(source, bos="", eos="")
    assert template.tool_style.results_field == "tool_responses"
    prompt = template.render(ASKED, tools=[WEATHER])
    assert (
        'I look.call:get_weather{"city": "Zürich"}response:get_weather=20 degrees<turn|>' in prompt
    )
    assert "<|turn>tool" not in prompt
