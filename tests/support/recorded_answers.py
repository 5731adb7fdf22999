"""Recorded answers: prompts of tiny models, with options of every kind, and what came of each.

The cases are arguments of the command line; the same answers come through the engine's door. They
are written by `tests/recorders/golden_answers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import thinkers
import tiny

GOLDEN = Path(__file__).parents[1] / "golden" / "answers.json"
START = "the quick brown fox"
LIST = "one two three four five, one two three four five, one two"
GREEDY = ("--temp", "0")
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
_GRAMMAR = 'root ::= line line line\nline ::= "- " [a-z ]{3,12} "\\n"\n'

# How each model is written.
MODELS = {
    "llama": partial(tiny.write, context=1_024),
    "llama Q4_0": partial(tiny.write, format="Q4_0", context=1_024, seed=3),
    "qwen3": partial(tiny.write, architecture="qwen3", context=1_024, seed=1),
    "gemma3": partial(tiny.write, architecture="gemma3", context=1_024, seed=2),
    "short": partial(tiny.write, context=64),
    **{
        f"thinks {name}": partial(thinkers.write, family=thinkers.FAMILIES[name])
        for name in ("Qwen3", "DeepSeek-R1", "gpt-oss", "Mistral", "SmolLM3", "Gemma 4")
    },
}


def _chat(model: str, *options: str, prompt: str = "hello there") -> tuple[str, ...]:
    return model, "chat", "-p", prompt, *options


def _complete(model: str, *options: str, prompt: str = START) -> tuple[str, ...]:
    return model, "complete", "-p", prompt, *options


def _seeded(seed: int, *more: str) -> tuple[str, ...]:
    return "--temp", "1.1", "--seed", str(seed), *more


# A model, a subcommand and its options; `@NAME` is the file of that name or the model of that name.
CASES: dict[str, tuple[str, ...]] = {
    "greedy chat": _chat("llama", *GREEDY, "-n", "40"),
    "greedy text": _complete("llama", *GREEDY, "-n", "40"),
    "greedy, Q4_0": _complete("llama Q4_0", *GREEDY, "-n", "40"),
    "greedy, qwen3": _chat("qwen3", *GREEDY, "-n", "40"),
    "greedy, gemma3": _chat("gemma3", *GREEDY, "-n", "40"),
    "greedy, f16 pages": _complete("gemma3", *GREEDY, "-n", "40", "--cache", "f16"),
    "instructions": _chat("llama", *GREEDY, "-n", "30", "-S", "answer the question"),
    "seeded chat": _chat("llama", *_seeded(7), "-n", "40"),
    "seeded text": _complete("llama Q4_0", *_seeded(8), "-n", "40"),
    "seeded, gemma3": _chat("gemma3", *_seeded(9), "-n", "40"),
    "no filters": _complete(
        "qwen3", *_seeded(1, "--top-k", "0", "--top-p", "1", "--min-p", "0"), "-n", "40"
    ),
    "typical": _complete("llama", *_seeded(2, "--typical", "0.8"), "-n", "40"),
    "top n sigma": _complete("llama", *_seeded(3, "--top-n-sigma", "1.5"), "-n", "40"),
    "XTC": _complete(
        "llama", *_seeded(4, "--xtc-probability", "0.7", "--xtc-threshold", "0.05"), "-n", "40"
    ),
    "mirostat 1": _complete("llama", *_seeded(5, "--mirostat", "1"), "-n", "40"),
    "mirostat 2": _complete("qwen3", *_seeded(6, "--mirostat", "2"), "-n", "40"),
    "dynamic temperature": _chat("qwen3", *_seeded(10, "--dynatemp-range", "0.5"), "-n", "40"),
    "penalties": _complete(
        "llama",
        *_seeded(11, "--repeat-penalty", "1.3", "--frequency-penalty", "0.4"),
        *("--presence-penalty", "0.2", "-n", "40"),
    ),
    "DRY": _complete(
        "llama", *_seeded(12, "--dry-multiplier", "0.8"), "-n", "40", prompt=LIST
    ),
    "bias": _complete("llama", *GREEDY, "-n", "40", "--logit-bias", "97-inf"),
    "banned texts": _complete(
        "llama", *_seeded(13), "-n", "40", "--ban", "the", "--ban", "o", "--ban", "e"
    ),
    "no end": _complete("gemma3", *_seeded(14), "-n", "60", "--ignore-eos"),
    "log probabilities": _complete("llama", *GREEDY, "-n", "12", "--logprobs", "3"),
    "log probabilities, seeded": _chat("gemma3", *_seeded(15), "-n", "12", "--logprobs", "2"),
    "several answers": _chat("llama", *_seeded(16), "-n", "20", "-N", "3"),
    "several answers, choices": _chat(
        "qwen3", *_seeded(17), "-N", "3", "--choices", "yes,no,perhaps"
    ),
    "schema": _chat("llama", *_seeded(18), "-n", "60", "--json-schema", "@schema.json"),
    "grammar": _complete("llama Q4_0", *_seeded(19), "-n", "60", "--grammar", "@lines.gbnf"),
    "regular expression": _complete("gemma3", *_seeded(20), "--regex", "[a-f]{4}-[0-9]{3}"),
    "n-gram drafts": _complete("llama", *GREEDY, "-n", "60", "--ngram", prompt=LIST),
    "draft model": _complete("llama", *_seeded(21), "-n", "40", "--draft", "@llama"),
    "full context": _complete("short", *GREEDY, "--allow-loops"),
    "loops": _complete("thinks Qwen3", *GREEDY, "-n", "300"),
    "thoughts, limited": _chat("thinks Qwen3", *GREEDY, "-n", "5", "--thinking", "17"),
    "thoughts in the prompt": _chat("thinks DeepSeek-R1", *GREEDY, "-n", "5", "--thinking", "9"),
    "thoughts of gpt-oss": _chat("thinks gpt-oss", *GREEDY, "-n", "5", "--thinking", "12"),
    "thoughts of Mistral": _chat("thinks Mistral", *GREEDY, "-n", "30", "--thinking", "on"),
    "thoughts off": _chat("thinks SmolLM3", *GREEDY, "-n", "8", "--thinking", "off"),
    "thoughts, then choices": _chat(
        "thinks Gemma 4", *GREEDY, "-n", "12", "--thinking", "6", "--choices", "yes,no"
    ),
}  # fmt: skip

# What is recorded of an answer, as the command line names it.
FIELDS = (
    "text", "token_ids", "prompt_tokens", "generated_tokens", "finish_reason", "forced_tokens",
    "incomplete", "thought_tokens", "thought_budget_reached",
)  # fmt: skip


def write_models(folder: Path) -> dict[str, Path]:
    """Write the models and the other files of the cases, by name."""
    (folder / "schema.json").write_text(json.dumps(_SCHEMA), encoding="utf-8")
    (folder / "lines.gbnf").write_text(_GRAMMAR, encoding="utf-8")
    found = {name: folder / name for name in ("schema.json", "lines.gbnf")}
    for name, write in MODELS.items():
        found[name] = folder / f"{name}.gguf"
        write(found[name])
    return found


def arguments(case: str, files: Mapping[str, Path]) -> list[str]:
    """The arguments of the command line for a case."""
    model, command, *options = CASES[case]
    named = [str(files[one[1:]]) if one[:1] == "@" else one for one in options]
    return [command, "-m", str(files[model]), *named, "--json"]


def recorded(printed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is recorded of the answers that the command line printed as JSON."""
    return [
        {name: one[name] for name in FIELDS}
        | ({"logprobs": _logprobs(one["logprobs"])} if "logprobs" in one else {})
        for one in printed.get("answers", [printed])
    ]


def _logprobs(found: list[dict[str, Any]]) -> list[Any]:
    """The tokens, and their log probabilities as far as all instruction sets compute the same."""
    return [
        [one["token_id"], round(one["logprob"], 3), [top["token_id"] for top in one["top"]]]
        for one in found
    ]
