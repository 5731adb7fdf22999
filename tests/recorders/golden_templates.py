"""Records prompts of llama.cpp: its own test's templates and answers, and template files it renders.

    python tests/recorders/golden_templates.py SOURCE SERVER MODEL

SOURCE is llama.cpp's source tree, SERVER its `llama-server`, MODEL any small GGUF file: the server
wants one, and is asked for prompts only. Writes golden/chat_templates.json.

The cases of tests/test-chat-template.cpp are taken as data: template, begin and end token, and the
prompt its Jinja engine must give. The files below models/templates/ have no recorded answers there,
so llama.cpp is asked for them, over loopback.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from llama_server import Refusal, ask, serving, version

GOLDEN = Path(__file__).parents[1] / "golden" / "chat_templates.json"
TALK = [
    ["system", "You are a helpful assistant"],
    ["user", "Hello"],
    ["assistant", "Hi there"],
    ["user", "Who are you"],
    ["assistant", "   I am an assistant   "],
    ["user", "Another question"],
]
DATE = "26 Jul 2024"  # what Llama 3.1's template takes for today's unless told
MESSAGES = [{"role": role, "content": text} for role, text in TALK]
# Of the families this engine runs, those the conversation can be put through.
FILES = [
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "HuggingFaceTB-SmolLM3-3B",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "unsloth-mistral-Devstral-Small-2507",
]
_STRING = re.compile(r'(?:u8|U8C\()?"((?:[^"\\]|\\.)*)"', re.DOTALL)
_FIELD = re.compile(r"/\*\s*\.(\w+)\s*=?\s*\*/\s*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "'": "'", "0": "\0"}


def cases(source: str) -> Iterator[dict[str, Any]]:
    """The test cases of test-chat-template.cpp that its Jinja engine is held to."""
    begin = source.index("std::vector<TestCase> test_cases")
    table = source[begin : source.index("\n    };\n", begin)]
    for entry in re.split(r"\n        \{\n", table)[1:]:
        fields = dict(_fields(entry))
        if fields.get("supported_with_jinja") == "false" or "extra_conversation" in fields:
            continue
        if "additional_special_tokens" in fields["template_str"]:  # a list no GGUF file carries
            continue
        yield {
            "name": fields["name"],
            "source": "tests/test-chat-template.cpp",
            "template": fields["template_str"],
            "bos": fields.get("bos_token", ""),
            "eos": fields.get("eos_token", ""),
            "expected": fields.get("expected_output_jinja") or fields["expected_output"],
        }


def _fields(entry: str) -> Iterator[tuple[str, str]]:
    """Field names with their values: joined string literals without escapes, or a bare word."""
    marks = list(_FIELD.finditer(entry))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        value = entry[mark.end() : following.start() if following else len(entry)]
        literals = _STRING.findall(re.sub(r"(?m)^\s*//.*$", "", value))
        if literals:
            yield mark[1], "".join(map(_unescaped, literals))
        else:
            yield mark[1], value.strip(" ,\n{}")


def _unescaped(literal: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], literal, flags=re.DOTALL)


def rendered(source: Path, server: str, model: Path) -> Iterator[dict[str, Any]]:
    """The template files, with what llama.cpp makes of the conversation."""
    for name in FILES:
        path = source / "models" / "templates" / f"{name}.jinja"
        options = ("--jinja", "--chat-template-file", str(path), "--reasoning-format", "none")
        with serving(server, model, "-c", "512", *options) as address:
            facts = ask(address, "props")
            row = {
                "name": name,
                "source": f"models/templates/{name}.jinja",
                "template": path.read_text(encoding="utf-8"),
                "bos": facts["bos_token"],
                "eos": facts["eos_token"],
            }
            # What llama.cpp sets where nobody does, and others leave to the template, is said.
            chooses = "enable_thinking" in row["template"]
            for thinking in (True, False) if chooses else (None,):
                if chooses:
                    row |= {"enable_thinking": thinking}
                    row["name"] = name if thinking else f"{name}, thinking off"
                chosen: dict[str, Any] = {"enable_thinking": thinking} if chooses else {}
                if "strftime_now" not in row["template"]:
                    chosen["date_string"] = DATE
                question = {"messages": MESSAGES, "chat_template_kwargs": chosen}
                try:
                    yield row | {"expected": ask(address, "apply-template", question)["prompt"]}
                except Refusal as refusal:
                    print(f"{name}: {refusal}")


def main(source: Path, server: str, model: Path) -> None:
    """Record all there is."""
    test = (source / "tests" / "test-chat-template.cpp").read_text(encoding="utf-8")
    found = {
        "origin": "Templates as data and prompts of llama.cpp (MIT License, copyright 2023-2026 the "
        f"ggml authors), {version(server)}; written by tests/recorders/golden_templates.py",
        "now": datetime.now().isoformat(timespec="minutes"),
        "turns": TALK,
        "rows": [*cases(test), *rendered(source, server, model)],
    }
    GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(found['rows'])} rows, {GOLDEN.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
