"""The command `llm` against the server: a prompt, one without a stream, a schema, a conversation.

python llm_command.py ADDRESS MODEL
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BASE, MODEL = f"{sys.argv[1]}/v1", sys.argv[2]
ANSWER, VALUE = "One two three.", "Paris"
PLACE = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
SCHEMA = json.dumps({"type": "object", "additionalProperties": False} | PLACE)


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "llm", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


with tempfile.TemporaryDirectory() as folder:
    os.environ["LLM_USER_PATH"] = folder
    lines = ["- model_id: local", f"  model_name: {MODEL}", f"  api_base: {BASE}"]
    lines += ["  supports_schema: true", "  supports_tools: true"]
    Path(folder, "extra-openai-models.yaml").write_text("\n".join(lines), encoding="utf-8")
    run("keys", "set", "openai", "--value", "x")
    assert run("-m", "local", "hello") == ANSWER
    assert run("-m", "local", "--no-stream", "hello") == ANSWER
    assert run("-c", "-m", "local", "and again") == ANSWER
    assert json.loads(run("-m", "local", "--schema", SCHEMA, "hello")) == {"city": VALUE}
    assert run("-m", "local", "-T", "llm_version", "which version?") == ANSWER
    (last,) = json.loads(run("logs", "-n", "1", "--json"))
    assert last["output_tokens"] > 0
