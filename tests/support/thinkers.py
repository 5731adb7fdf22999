"""Tiny models that think for ever: each token determines the next one, and most lead to one word."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader

import tiny
from engine import Role, Turn
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile

ROOT = Path(__file__).resolve().parents[2]
WORD = "x"  # what the model writes where it has nothing else to write
_HIDDEN = 256
_USER_DEFINED = 4
_WORD_SHARE = 0.6  # of the largest logit, for that word


@dataclass(frozen=True, slots=True)
class Family:
    """How the models of a family write thoughts."""

    template: str
    opens: str  # as the model writes it; "": the prompt has it
    ends: str
    tokens: Sequence[str] = ()  # special tokens; of other markers each byte is one
    control: Sequence[str] = ()  # of these, those that are control tokens
    always: bool = False  # the template has no switch


def _golden(name: str) -> str:
    rows = json.loads((ROOT / "tests" / "golden" / "chat_templates.json").read_text("utf-8"))
    return next(row["template"] for row in rows["rows"] if row["name"] == name)


def _turns(user: str, assistant: str, answer: str, prompt: str) -> str:
    """A template with a turn of each role, and how the prompt of an answer ends."""
    return (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        + assistant
        + "{% if loop.last and m.thinking %}"
        + answer
        + "{% else %}{{ m.content }}{% endif %}{% else %}"
        + user
        + "{% endif %}{% endfor %}{% if add_generation_prompt %}"
        + prompt
        + "{% endif %}"
    )


# Blank lines are tokens, so that an answer does not begin like the turn before it.
THINK = ("<think>", "</think>", "\n\n")
_CHATML_USER = "<|im_start|>user\n{{ m.content }}<|im_end|>\n"
_HARMONY_ENDS = "<|end|><|start|>assistant<|channel|>final<|message|>"
_HARMONY = (
    "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>", "assistant",
    "analysis", "final",
)  # fmt: skip

FAMILIES = {
    "Qwen3": Family(_golden("Qwen-Qwen3-0.6B"), "<think>", "\n</think>\n\n", THINK),
    "Qwen3.5": Family(
        _turns(
            _CHATML_USER,
            "<|im_start|>assistant\n",
            "<think>\n{{ m.thinking }}\n</think>\n\n{{ m.content }}<|im_end|>\n",
            "<|im_start|>assistant\n<think>\n"
            "{% if enable_thinking is false %}\n</think>\n\n{% endif %}",
        ),
        "",
        "\n</think>\n\n",
        THINK,
    ),
    "DeepSeek-R1": Family(
        _golden("deepseek-ai-DeepSeek-R1-Distill-Llama-8B"),
        "",
        "\n</think>\n\n",
        THINK,
        always=True,
    ),
    "gpt-oss": Family(
        _turns(
            "<|start|>user<|message|>{{ m.content }}<|end|>",
            "<|start|>assistant",
            "<|channel|>analysis<|message|>{{ m.thinking }}" + _HARMONY_ENDS + "{{ m.content }}",
            "<|start|>assistant",
        ),
        "<|channel|>analysis<|message|>",
        _HARMONY_ENDS,
        _HARMONY,
        ("<|end|>", "<|return|>", "<|call|>"),
        always=True,
    ),
    "Gemma 4": Family(
        _turns(
            "<|turn>user\n{{ m.content }}<turn|>\n",
            "<|turn>model\n",
            "{{ m.content }}",
            "<|turn>model\n{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}",
        ),
        "<|channel>thought",
        "<channel|>",
        ("<|turn>", "<turn|>", "<|channel>", "<channel|>", "thought", "model"),
        ("<turn|>",),
    ),
    "Mistral": Family(
        _golden("mistralai-Ministral-3-14B-Reasoning-2512"),
        "[THINK]",
        "[/THINK]",
        ("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[THINK]", "[/THINK]"),
        ("[INST]", "[/INST]", "[THINK]", "[/THINK]"),
        always=True,
    ),
    "SmolLM3": Family(
        _golden("HuggingFaceTB-SmolLM3-3B"),
        "<think>",
        "\n</think>\n",
        ("<think>", "</think>\n"),  # a token that is more than the marker
    ),
    "Granite": Family(
        _golden("ibm-granite-granite-3.3-2B-Instruct"),
        "<think>",
        "\n</think>\n\n",
        ("<|end_of_role|>", *THINK),
    ),
    "Seed-OSS": Family(
        "{% for m in messages %}<seed:bos>{{ m.role }}\n{% if m.reasoning_content %}"
        "<seed:think>{{ m.reasoning_content }}</seed:think>\n{% endif %}{{ m.content }}<seed:eos>"
        "{% endfor %}{% if add_generation_prompt %}<seed:bos>assistant\n{% endif %}",
        "<seed:think>",
        "</seed:think>\n",
        ("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>\n"),
        always=True,
    ),
    "Command-R7B": Family(
        _golden("CohereForAI-c4ai-command-r7b-12-2024-tool_use"),
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        ("<|CHATBOT_TOKEN|>", "<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    "LFM2.5": Family(
        _turns(
            _CHATML_USER,
            "<|im_start|>assistant\n",
            "<think>{{ m.thinking }}</think>{{ m.content }}<|im_end|>\n",
            "<|im_start|>assistant\n",
        ),
        "<think>",
        "</think>",
        THINK,
        always=True,
    ),
    "GLM": Family(
        _turns(
            "<|user|>{{ m.content }}",
            "<|assistant|>",
            "<think>{{ m.thinking }}</think>{{ m.content }}",
            "<|assistant|>{% if enable_thinking is false %}</think>{% else %}<think>{% endif %}",
        ),
        "",
        "</think>",
        ("<|user|>", "<|assistant|>", *THINK),
    ),
    "Solar": Family(
        _turns(
            "<|begin|>user<|content|>{{ m.content }}<|end|>",
            "<|begin|>assistant",
            "<|think|>{{ m.thinking }}<|end|><|begin|>assistant<|content|>{{ m.content }}<|end|>",
            "<|begin|>assistant",
        ),
        "<|think|>",
        "<|end|><|begin|>assistant<|content|>",
        ("<|begin|>", "<|content|>", "<|think|>", "<|end|>", "assistant"),
        ("<|end|>",),  # ends an answer, too
        always=True,
    ),
    "tags as text": Family(_golden("Qwen-Qwen3-0.6B"), "<think>", "\n</think>\n\n", ("\n\n",)),
}


def write(path: Path, family: Family, *, context: int = 4096) -> Path:
    """Write a model that begins every answer with thoughts, and never ends them.

    Its answers never end either.
    """
    words = tiny.bpe("llama")
    tokens = [*words["tokenizer.ggml.tokens"], *family.tokens]
    kinds = [*words["tokenizer.ggml.token_type"]]
    kinds += [tiny.CONTROL if one in family.control else _USER_DEFINED for one in family.tokens]
    tiny.write(
        path,
        layers=1,
        hidden=_HIDDEN,
        context=context,
        template=family.template,
        vocabulary=len(tokens),
        metadata={"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds},
    )
    with GGUFFile.open(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        template = ChatTemplate.from_metadata(file.metadata, tokenizer)
    question = (Turn(Role.USER, "hello"),)
    prompt = template.render(question, enable_thinking=True)
    text = tokenizer.encode(prompt + family.opens, add_special=False)
    begin = len(tokenizer.encode(prompt, add_special=False))
    tensors = {one.name: one.data for one in GGUFReader(path, "r+").tensors}
    tensors["blk.0.attn_output.weight"][:] = 0
    tensors["blk.0.ffn_down.weight"][:] = 0
    tensors["output_norm.weight"][:] = 1
    random = np.random.default_rng(1)
    rows = random.normal(size=(len(tokens), _HIDDEN)).astype(np.float32)
    rows[:, 0] = 0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:, 0] = 1  # of every token: leads to WORD
    tensors["token_embd.weight"][:] = rows
    head = tensors["output.weight"]
    head[:] = 0
    head[tokenizer.encode(WORD)[0], 0] = _WORD_SHARE
    for token, after in zip(text[begin - 1 : -1], text[begin:], strict=True):
        head[after, 1:] += rows[token, 1:]
    tensors["token_embd.weight"].base.flush()
    return path
