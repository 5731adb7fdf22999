"""Chat templates for files that carry none: one per family, chosen by the vocabulary.

The control texts a vocabulary holds say which conversations its model was trained on, better than
the architecture does: half the world's models call themselves llama. Only where there are none, the
architecture decides; and a model of no known family is held to a plain dialogue. A begin token is
put before the prompt of any model that wants one, so few templates name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A template of ours. `stop`: texts that end an answer where no control token does."""

    name: str
    source: str
    stop: tuple[str, ...] = ()


def _each_turn(before: str, after: str, answer: str) -> str:
    """One form for every role; `answer` is where the model begins to speak."""
    return (
        "{%- for message in messages -%}"
        f"{{{{- {before} + message.content + {after} -}}}}"
        "{%- endfor -%}"
        f"{{%- if add_generation_prompt -%}}{{{{- {answer} -}}}}{{%- endif -%}}"
    )


def _two_sides(system: str, user: str, assistant: str, answer: str) -> str:
    """A form for each role, in a template's own words; one that is "" is left out."""
    sides = {"system": system, "user": user, "assistant": assistant}
    branches = "".join(
        f"{{%- if message.role == '{role}' -%}}{{{{- {form} -}}}}{{%- endif -%}}"
        for role, form in sides.items()
        if form
    )
    return (
        f"{{%- for message in messages -%}}{branches}{{%- endfor -%}}"
        f"{{%- if add_generation_prompt -%}}{{{{- {answer} -}}}}{{%- endif -%}}"
    )


_CHATML = BuiltIn(
    "ChatML",
    _each_turn(
        r"'<|im_start|>' + message.role + '\n'", r"'<|im_end|>\n'", r"'<|im_start|>assistant\n'"
    ),
)
_PHI_4 = BuiltIn(
    "Phi 4",
    _each_turn(
        "'<|im_start|>' + message.role + '<|im_sep|>'",
        "'<|im_end|>'",
        "'<|im_start|>assistant<|im_sep|>'",
    ),
)
_PHI_3 = BuiltIn(
    "Phi 3",
    _each_turn(r"'<|' + message.role + '|>\n'", r"'<|end|>\n'", r"'<|assistant|>\n'"),
)
_GRANITE = BuiltIn(
    "Granite",
    _each_turn(
        "'<|start_of_role|>' + message.role + '<|end_of_role|>'",
        r"'<|end_of_text|>\n'",
        "'<|start_of_role|>assistant<|end_of_role|>'",
    ),
)
_LLAMA_3 = BuiltIn(
    "Llama 3",
    _each_turn(
        r"'<|start_header_id|>' + message.role + '<|end_header_id|>\n\n'",
        "'<|eot_id|>'",
        r"'<|start_header_id|>assistant<|end_header_id|>\n\n'",
    ),
)
# Gemma, Mistral: no role for system text, which goes before the user's first words.
_GEMMA = BuiltIn(
    "Gemma",
    _two_sides(
        "",
        r"'<start_of_turn>user\n' + message.content|trim + '<end_of_turn>\n'",
        r"'<start_of_turn>model\n' + message.content|trim + '<end_of_turn>\n'",
        r"'<start_of_turn>model\n'",
    ),
)
_MISTRAL = BuiltIn(
    "Mistral",
    _two_sides("", "'[INST]' + message.content + '[/INST]'", "message.content + eos_token", "''"),
)


def _cohere(role: str) -> str:
    return (
        f"'<|START_OF_TURN_TOKEN|><|{role}_TOKEN|>' + message.content|trim"
        " + '<|END_OF_TURN_TOKEN|>'"
    )


_COMMAND_R = BuiltIn(
    "Command R",
    _two_sides(
        _cohere("SYSTEM"),
        _cohere("USER"),
        _cohere("CHATBOT"),
        "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'",
    ),
)
_OLMO_2 = BuiltIn(
    "OLMo 2",
    "{{- bos_token -}}"
    + _two_sides(
        r"'<|system|>\n' + message.content + '\n'",
        r"'<|user|>\n' + message.content + '\n'",
        r"'<|assistant|>\n' + message.content + eos_token + '\n'",
        r"'<|assistant|>\n'",
    ),
    stop=("<|user|>",),
)
_LLAMA_2 = BuiltIn(
    "Llama 2",
    "{%- set ns = namespace(system='') -%}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}"
    r"{%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' -%}"
    "{%- elif message.role == 'user' -%}"
    "{{- bos_token + '[INST] ' + ns.system + message.content|trim + ' [/INST]' -}}"
    "{%- set ns.system = '' -%}"
    "{%- else -%}{{- ' ' + message.content|trim + ' ' + eos_token -}}{%- endif -%}"
    "{%- endfor -%}",
)


def _spoken(system: str, user: str, assistant: str) -> str:
    """A dialogue in plain words; `assistant` ends in nothing, for models dislike a last space."""
    return _two_sides(
        system,
        rf"'{user}' + message.content|trim + '\n'",
        rf"'{assistant} ' + message.content|trim + '\n'",
        f"'{assistant}'",
    )


_PLAIN_SYSTEM = r"message.content|trim + '\n\n'"
_PHI_2 = BuiltIn(
    "Phi 2", _spoken(_PLAIN_SYSTEM, "Instruct: ", "Output:"), stop=("\nInstruct:", "\nOutput:")
)
_STARCODER = BuiltIn(
    "StarCoder",
    "{{- bos_token -}}"
    + _two_sides(
        _PLAIN_SYSTEM,
        r"'### Instruction\n' + message.content|trim + '\n\n'",
        r"'### Response\n' + message.content|trim + '\n\n'",
        r"'### Response\n'",
    ),
    stop=("\n### Instruction",),
)
PLAIN = BuiltIn(
    "plain dialogue",
    _spoken(_PLAIN_SYSTEM, "User: ", "Assistant:"),
    stop=("\nUser:", "\nAssistant:"),
)

_BY_MARKS: tuple[tuple[tuple[str, ...], BuiltIn], ...] = (
    (("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), _LLAMA_3),
    (("<start_of_turn>", "<end_of_turn>"), _GEMMA),
    (("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"), _COMMAND_R),
    (("<|start_of_role|>", "<|end_of_role|>"), _GRANITE),
    (("<|im_start|>", "<|im_sep|>", "<|im_end|>"), _PHI_4),
    (("<|im_start|>", "<|im_end|>"), _CHATML),
    (("<|user|>", "<|assistant|>", "<|end|>"), _PHI_3),
    (("[INST]", "[/INST]"), _MISTRAL),
)
_BY_ARCHITECTURE = {
    "olmo2": _OLMO_2,
    "phi2": _PHI_2,
    "starcoder": _STARCODER,
    "starcoder2": _STARCODER,
}


def choose(metadata: Mapping[str, object], tokenizer: Tokenizer) -> BuiltIn:
    """The template for a GGUF file's model that brings none."""
    for marks, template in _BY_MARKS:
        if all(tokenizer.token_id(mark) is not None for mark in marks):
            return template
    architecture = metadata.get("general.architecture")
    if architecture == "llama" and tokenizer.sentencepiece:
        return _LLAMA_2
    return _BY_ARCHITECTURE.get(str(architecture), PLAIN)
