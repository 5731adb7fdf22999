"""Built-in chat templates: the choice by vocabulary, and the rendered prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tiny
from engine.errors import RequestError
from engine.frontend.builtin import choose, named
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.messages import Role, Turn

TALK = (
    Turn(Role.SYSTEM, "Be brief."),
    Turn(Role.USER, "Hello"),
    Turn(Role.ASSISTANT, "Hi there"),
    Turn(Role.USER, "你好 مرحبا"),
)
# The prompt that each family's published template renders for that conversation.
EXPECTED: dict[str, tuple[str, tuple[str, ...], str]] = {  # architecture, special tokens, prompt
    "Llama 3": (
        "llama",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n你好 مرحبا<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "ChatML": (
        "qwen2",
        ("<|im_start|>", "<|im_end|>"),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\n你好 مرحبا<|im_end|>\n"
        "<|im_start|>assistant\n",
    ),
    "Phi 4": (
        "phi3",
        ("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>Hello<|im_end|>"
        "<|im_start|>assistant<|im_sep|>Hi there<|im_end|>"
        "<|im_start|>user<|im_sep|>你好 مرحبا<|im_end|><|im_start|>assistant<|im_sep|>",
    ),
    "Phi 3": (
        "phi3",
        ("<|user|>", "<|assistant|>", "<|end|>"),
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi there<|end|>\n"
        "<|user|>\n你好 مرحبا<|end|>\n<|assistant|>\n",
    ),
    "Gemma": (
        "gemma",
        ("<start_of_turn>", "<end_of_turn>"),
        "<start_of_turn>user\nBe brief.\nHello<end_of_turn>\n"
        "<start_of_turn>model\nHi there<end_of_turn>\n"
        "<start_of_turn>user\n你好 مرحبا<end_of_turn>\n<start_of_turn>model\n",
    ),
    "Command R": (
        "command-r",
        ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be brief.<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hello<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hi there<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>你好 مرحبا<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    "Granite": (
        "granite",
        ("<|start_of_role|>", "<|end_of_role|>"),
        "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>Hi there<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>你好 مرحبا<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
    "Mistral": (
        "llama",
        ("[INST]", "[/INST]"),
        "[INST]Be brief.\nHello[/INST]Hi there</s>[INST]你好 مرحبا[/INST]",
    ),
    "Llama 2": (
        "llama",
        (),
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello [/INST] Hi there </s>"
        "<s>[INST] 你好 مرحبا [/INST]",
    ),
    "OLMo 2": (
        "olmo2",
        (),
        "<s><|system|>\nBe brief.\n<|user|>\nHello\n<|assistant|>\nHi there</s>\n"
        "<|user|>\n你好 مرحبا\n<|assistant|>\n",
    ),
    "Phi 2": (
        "phi2",
        (),
        "Be brief.\n\nInstruct: Hello\nOutput: Hi there\nInstruct: 你好 مرحبا\nOutput:",
    ),
    "StarCoder": (
        "starcoder2",
        (),
        "<s>Be brief.\n\n### Instruction\nHello\n\n### Response\nHi there\n\n"
        "### Instruction\n你好 مرحبا\n\n### Response\n",
    ),
    "plain dialogue": (
        "qwen3",
        (),
        "Be brief.\n\nUser: Hello\nAssistant: Hi there\nUser: 你好 مرحبا\nAssistant:",
    ),
}


def vocabulary(
    architecture: str, special_tokens: tuple[str, ...]
) -> tuple[dict[str, Any], Tokenizer]:
    tokens = ["<unk>", "<s>", "</s>", "▁", "a", *special_tokens]
    metadata: dict[str, Any] = {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1] + [3] * len(special_tokens),
    }
    return metadata, Tokenizer.from_metadata(metadata)


@pytest.mark.parametrize("name", EXPECTED)
def test_built_in_template_renders_the_published_format(name: str) -> None:
    architecture, special_tokens, prompt = EXPECTED[name]
    metadata, tokenizer = vocabulary(architecture, special_tokens)
    template = ChatTemplate.from_metadata(metadata, tokenizer)
    assert template.built_in == name
    assert template.render(TALK) == prompt
    assert template.render(TALK[1:]).count("Be brief") == 0
    assert len(template.render(TALK, add_generation_prompt=False)) <= len(prompt)


def test_formats_without_an_end_token_have_stop_strings() -> None:
    for name, (architecture, special_tokens, prompt) in EXPECTED.items():
        metadata, tokenizer = vocabulary(architecture, special_tokens)
        stops = choose(metadata, tokenizer).stop
        dialogues = {"Phi 2", "StarCoder", "OLMo 2", "plain dialogue"}
        assert bool(stops) == (name in dialogues)
        assert not stops or any(stop in prompt for stop in stops)


@pytest.mark.parametrize("source", [None, "", "  \n"])
def test_file_without_a_template_gets_a_built_in_one(source: str | None, tmp_path: Path) -> None:
    with GGUFFile.open(tiny.write(tmp_path / "m.gguf", template=source)) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        template = ChatTemplate.from_metadata(file.metadata, tokenizer)
    assert template.built_in == "ChatML"
    assert template.render(TALK) == EXPECTED["ChatML"][2]


def test_a_files_own_template_is_never_replaced(tmp_path: Path) -> None:
    with GGUFFile.open(tiny.write(tmp_path / "m.gguf", template="{{ nonsense }}")) as file:
        template = ChatTemplate.from_metadata(file.metadata, Tokenizer.from_metadata(file.metadata))
    assert not template.built_in
    assert template.stop == ()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("chatml", "ChatML"),
        ("llama3", "Llama 3"),
        ("Llama 3", "Llama 3"),
        ("command-r", "Command R"),
        ("phi4", "Phi 4"),
        ("gemma", "Gemma"),
        ("llama2", "Llama 2"),
    ],
)
def test_a_built_in_template_may_be_named(name: str, found: str, tmp_path: Path) -> None:
    with GGUFFile.open(tiny.write(tmp_path / "m.gguf", template="{{ nonsense }}")) as file:
        words = Tokenizer.from_metadata(file.metadata)
        template = ChatTemplate.from_metadata(file.metadata, words, name)
    assert template.built_in == found
    if found != "Llama 2":  # which has the token that begins a text
        assert template.render(TALK) == EXPECTED[found][2]


def test_a_template_may_be_given(tmp_path: Path) -> None:
    given = "{% for message in messages %}<{{ message.content }}>{% endfor %}"
    with GGUFFile.open(tiny.write(tmp_path / "m.gguf")) as file:
        words = Tokenizer.from_metadata(file.metadata)
        template = ChatTemplate.from_metadata(file.metadata, words, given)
    assert (template.source, template.built_in) == (given, "")
    assert template.render(TALK[1:2]) == "<Hello>"


@pytest.mark.parametrize("name", ["vicuna", "This is not a chat template", "chatml2"])
def test_an_unknown_name_lists_those_that_there_are(name: str) -> None:
    with pytest.raises(RequestError, match=name) as error:
        named(name)
    assert "chatml, phi3" in error.value.remedy
