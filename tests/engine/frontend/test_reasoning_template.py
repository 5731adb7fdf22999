"""Thought markers: found from the templates of many families."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import Role, Turn
from engine.frontend.template import ChatTemplate
from engine.messages.reasoning_markers import ThoughtMarkers
from thinkers import FAMILIES

USER, ASSISTANT = Role.USER, Role.ASSISTANT
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "chat_templates.json"
ROWS = {row["name"]: row for row in json.loads(GOLDEN.read_text("utf-8"))["rows"]}
SPACED = "\n</think>\n\n"
HARMONY = "<|channel|>final<|message|>"
# What each template shows: opening marker, closing text, field of a message.
FOUND = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": (
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "",
    ),
    "HuggingFaceTB-SmolLM3-3B": ("<think>", "\n</think>\n", ""),
    "Qwen-QwQ-32B": ("<think>", SPACED, ""),
    "Qwen-Qwen3-0.6B": ("<think>", SPACED, "reasoning_content"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("<think>", SPACED, ""),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("<think>", SPACED, ""),
    "ibm-granite-granite-3.3-2B-Instruct": ("<think>", SPACED, ""),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]", "blocks"),
}


def golden(name: str) -> ChatTemplate:
    row = ROWS[name]
    return ChatTemplate(row["template"], bos=row["bos"], eos=row["eos"])


def styled(family: str) -> ThoughtMarkers:
    return ChatTemplate(FAMILIES[family].template, bos="", eos="").markers


@pytest.mark.parametrize("name", sorted(ROWS))
def test_markers_are_found_in_templates_that_know_thoughts(name: str) -> None:
    found = golden(name).markers
    wanted = FOUND.get(name.removesuffix(", thinking off"))
    assert found.can_think == (wanted is not None)
    if wanted is None:
        assert found.are_usual
    else:
        assert (found.opens, found.closing, found.field) == wanted
        assert found.ends == found.closing.strip()


def test_markers_of_channels() -> None:
    found = styled("gpt-oss")
    assert found.opens == "<|channel|>analysis<|message|>"
    assert found.ends == found.closing == "<|end|><|start|>assistant" + HARMONY
    assert found.header == HARMONY
    assert found.again == "<|end|><|start|>assistant" + found.opens
    assert found.field == "thinking"
    found = styled("Gemma 4")
    assert (found.opens, found.closing, found.header) == ("<|channel>thought", "<channel|>", "")


def test_markers_are_those_of_the_vocabulary_where_the_template_shows_none() -> None:
    def of(*tokens: str) -> ThoughtMarkers:
        return ChatTemplate("hello", bos="", eos="", has_token=lambda one: one in tokens).markers

    assert of("[THINK]", "[/THINK]").opens == "[THINK]"
    assert of("<|channel>", "<channel|>").opens == "<|channel>thought"
    assert of("[THINK]").are_usual
    assert not of("<think>", "</think>").can_think


def test_a_faulty_template_has_the_usual_markers() -> None:
    for source in ("{{ raise_exception('no') }}", "{% if %}", "{% for m in messages * 9**9 %}a"):
        assert ChatTemplate(source, bos="", eos="").markers == ThoughtMarkers()


def test_an_answer_is_written_with_the_markers_of_the_model() -> None:
    found = styled("gpt-oss")
    assert found.written("<think>Hm.</think>Yes.") == found.opens + "Hm." + found.ends + "Yes."
    assert found.written("<think>Hm") == found.opens + "Hm"
    assert found.written("Yes.") == HARMONY + "Yes."
    usual = ThoughtMarkers()
    assert usual.written(" <think>Hm.</think>Yes.") == " <think>Hm.</think>Yes."


@pytest.mark.parametrize("name", ["Qwen3.5", "DeepSeek-R1", "GLM", "gpt-oss"])
def test_without_thinking_a_prompt_begins_no_thoughts(name: str) -> None:
    template = ChatTemplate(FAMILIES[name].template, bos="", eos="")
    prompt = template.render_answer([Turn(USER, "hello")], enable_thinking=False)
    assert prompt.text.strip().endswith(template.markers.header or "</think>")
    assert prompt.begun == template.markers.header
    assert prompt.opening == ""
    on = template.render_answer([Turn(USER, "hello")], enable_thinking=True)
    assert bool(on.opening) == (name != "gpt-oss")


@pytest.mark.parametrize(
    ("source", "on", "off"),
    [
        ("Reasoning: {{ reasoning_effort | default('medium') }}", "high", "low"),
        ("{% if reasoning_effort is undefined or reasoning_effort == none %}medium{% else %}{{ reasoning_effort }}{% endif %}", "high", "low"),
        ("{% set e = reasoning_effort | default('none') %}{{ e }}", "high", "none"),
    ],
)  # fmt: skip
def test_thinking_is_a_degree_where_the_template_has_degrees(
    source: str, on: str, off: str
) -> None:
    template = ChatTemplate(source, bos="", eos="")
    question = [Turn(USER, "hello")]
    assert template.render(question, enable_thinking=True).endswith(on)
    assert template.render(question, enable_thinking=False).endswith(off)
    assert template.render(question).endswith(("medium", "none"))
    assert template.has_thinking_switch


def test_thoughts_are_where_the_template_expects_them() -> None:
    turns = [Turn(USER, "hello"), Turn(ASSISTANT, "<think>Hm.</think>Yes.")]
    for name, shown in (
        ("gpt-oss", "<|channel|>analysis<|message|>Hm.<|end|>"),
        ("Mistral", "[THINK]Hm.[/THINK]Yes."),
        ("Qwen3", "<think>\nHm.\n</think>\n\nYes."),
    ):
        template = ChatTemplate(FAMILIES[name].template, bos="", eos="")
        assert shown in template.render(turns, add_generation_prompt=False)


def test_a_continued_answer_goes_on_inside_its_thoughts() -> None:
    for name in ("gpt-oss", "Qwen3.5", "Mistral"):
        template = ChatTemplate(FAMILIES[name].template, bos="", eos="")
        turns = [Turn(USER, "hello"), Turn(ASSISTANT, "<think>Hm")]
        prompt = template.render_answer(turns)
        assert prompt.continued
        assert prompt.text.endswith(template.markers.opens + "Hm")
        assert prompt.text.count(template.markers.opens) == 1 + (name == "Mistral")  # instructions
        assert prompt.opening == ""
