"""Built-in chat templates for model files without one, chosen by the vocabulary's special tokens.

The special tokens identify the conversation format of the training data better than the
architecture does, since models of many families have architecture `llama`. Without special tokens
the architecture decides, and a model of no known family gets a plain dialogue. `prompt_ids` adds
the begin token, so few templates contain it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in template.

    `stop`: stop strings, for formats without an end token. `end`: the token after a turn, if base
    models of these vocabularies end a text with another one.
    """

    name: str
    source: str
    stop: tuple[str, ...] = ()
    end: str = ""


def _same_form(before: str, after: str, answer: str) -> str:
    """A template with one form for every role; `answer` is the generation prompt."""
    return (
        "{%- for message in messages -%}"
        f"{{{{- {before} + message.content + {after} -}}}}"
        "{%- endfor -%}"
        f"{{%- if add_generation_prompt -%}}{{{{- {answer} -}}}}{{%- endif -%}}"
    )


def _form_per_role(system: str, user: str, assistant: str, answer: str) -> str:
    """A template with a Jinja expression for each role; a role with "" is left out."""
    forms = {"system": system, "user": user, "assistant": assistant}
    branches = "".join(
        f"{{%- if message.role == '{role}' -%}}{{{{- {form} -}}}}{{%- endif -%}}"
        for role, form in forms.items()
        if form
    )
    return (
        f"{{%- for message in messages -%}}{branches}{{%- endfor -%}}"
        f"{{%- if add_generation_prompt -%}}{{{{- {answer} -}}}}{{%- endif -%}}"
    )


_CHATML = BuiltIn(
    "ChatML",
    _same_form(
        r"'<|im_start|>' + message.role + '\n'", r"'<|im_end|>\n'", r"'<|im_start|>assistant\n'"
    ),
    end="<|im_end|>",
)
_PHI_4 = BuiltIn(
    "Phi 4",
    _same_form(
        "'<|im_start|>' + message.role + '<|im_sep|>'",
        "'<|im_end|>'",
        "'<|im_start|>assistant<|im_sep|>'",
    ),
    end="<|im_end|>",
)
_PHI_3 = BuiltIn(
    "Phi 3",
    _same_form(r"'<|' + message.role + '|>\n'", r"'<|end|>\n'", r"'<|assistant|>\n'"),
    end="<|end|>",
)
_GRANITE = BuiltIn(
    "Granite",
    _same_form(
        "'<|start_of_role|>' + message.role + '<|end_of_role|>'",
        r"'<|end_of_text|>\n'",
        "'<|start_of_role|>assistant<|end_of_role|>'",
    ),
)
_LLAMA_3 = BuiltIn(
    "Llama 3",
    _same_form(
        r"'<|start_header_id|>' + message.role + '<|end_header_id|>\n\n'",
        "'<|eot_id|>'",
        r"'<|start_header_id|>assistant<|end_header_id|>\n\n'",
    ),
    end="<|eot_id|>",
)
# Gemma and Mistral have no system role: ChatTemplate puts system text before the first user text.
_GEMMA = BuiltIn(
    "Gemma",
    _form_per_role(
        "",
        r"'<start_of_turn>user\n' + message.content|trim + '<end_of_turn>\n'",
        r"'<start_of_turn>model\n' + message.content|trim + '<end_of_turn>\n'",
        r"'<start_of_turn>model\n'",
    ),
    end="<end_of_turn>",
)
_MISTRAL = BuiltIn(
    "Mistral",
    _form_per_role(
        "", "'[INST]' + message.content + '[/INST]'", "message.content + eos_token", "''"
    ),
)


def _cohere(role: str) -> str:
    return (
        f"'<|START_OF_TURN_TOKEN|><|{role}_TOKEN|>' + message.content|trim"
        " + '<|END_OF_TURN_TOKEN|>'"
    )


_COMMAND_R = BuiltIn(
    "Command R",
    _form_per_role(
        _cohere("SYSTEM"),
        _cohere("USER"),
        _cohere("CHATBOT"),
        "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'",
    ),
    end="<|END_OF_TURN_TOKEN|>",
)
_OLMO_2 = BuiltIn(
    "OLMo 2",
    "{{- bos_token -}}"
    + _form_per_role(
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


def _dialogue(system: str, user: str, assistant: str) -> str:
    """A plain-text dialogue; the generation prompt `assistant` must not end in a space.

    Most vocabularies have the space as part of the next word's token.
    """
    return _form_per_role(
        system,
        rf"'{user}' + message.content|trim + '\n'",
        rf"'{assistant} ' + message.content|trim + '\n'",
        f"'{assistant}'",
    )


_PLAIN_SYSTEM = r"message.content|trim + '\n\n'"
_PHI_2 = BuiltIn(
    "Phi 2", _dialogue(_PLAIN_SYSTEM, "Instruct: ", "Output:"), stop=("\nInstruct:", "\nOutput:")
)
_STARCODER = BuiltIn(
    "StarCoder",
    "{{- bos_token -}}"
    + _form_per_role(
        _PLAIN_SYSTEM,
        r"'### Instruction\n' + message.content|trim + '\n\n'",
        r"'### Response\n' + message.content|trim + '\n\n'",
        r"'### Response\n'",
    ),
    stop=("\n### Instruction",),
)
PLAIN = BuiltIn(
    "plain dialogue",
    _dialogue(_PLAIN_SYSTEM, "User: ", "Assistant:"),
    stop=("\nUser:", "\nAssistant:"),
)

_BY_SPECIAL_TOKENS: tuple[tuple[tuple[str, ...], BuiltIn], ...] = (
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


_NAMED = {
    template.name.lower().replace(" ", ""): template
    for template in (
        *(template for _, template in _BY_SPECIAL_TOKENS),
        *(_LLAMA_2, _OLMO_2, _PHI_2, _STARCODER),
    )
}


def named(name: str) -> BuiltIn:
    """The built-in template of a name, such as "ChatML", "llama3" or "command-r"; raises RequestError."""
    plain = re.sub("[ _.-]", "", name.lower())
    if (found := _NAMED.get(plain)) is not None:
        return found
    raise RequestError(
        f"There is no built-in chat template {name[:60]!r}.",
        f"Give the text of one in Jinja, or one of {', '.join(_NAMED)}.",
    )


def choose(metadata: Mapping[str, object], tokenizer: Tokenizer) -> BuiltIn:
    """The built-in template for a GGUF file without one."""
    for special_tokens, template in _BY_SPECIAL_TOKENS:
        if all(tokenizer.token_id(text) is not None for text in special_tokens):
            return template
    architecture = metadata.get("general.architecture")
    if architecture == "llama" and tokenizer.sentencepiece:
        return _LLAMA_2
    return _BY_ARCHITECTURE.get(str(architecture), PLAIN)


def is_base(chosen: BuiltIn, metadata: Mapping[str, object], tokenizer: Tokenizer) -> bool:
    """Whether a model whose file has no template was probably not trained to chat.

    The vocabulary of a family has the tokens of its chats in base models too, but those end a text
    with another token.
    """
    if chosen is PLAIN:
        return True
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ends = {metadata[key] for key in keys if key in metadata}
    return bool(chosen.end) and bool(ends) and tokenizer.token_id(chosen.end) not in ends
