"""Programs of others, unchanged, against the server with a model that answers by heart.

Their packages need versions that this project does not: CLIENTS_PYTHON has the interpreters that
have them, and CLIENTS_NODE the folder with `node_modules`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scripted_model
from engine import Score, Scored
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from serving import Served

pytestmark = pytest.mark.slow
CLIENTS = Path(__file__).parent / "clients"
QUESTIONS = [
    ("the quick brown", ["fox jumps over", "tree sleeps", "answer"]),
    ("hello there, how", ["are you today?", "dog under the old tree", "fox"]),
    ("one two three", ["four five", "the lazy dog", "question"]),
    ("this is the answer", ["to that question.", "brown fox", "hello"]),
]
# By the scenarios of canitoolcall's probe, the calls that a model of their name makes.
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "single-call": [("get_weather", {"city": "Paris"})],
    "parallel-calls": [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})],
    "no-call": [],
    "nested-args": [
        (
            "create_event",
            {
                "title": "Design review",
                "start": "2026-10-01T15:00:00Z",
                "attendees": [
                    {"name": "Ana", "email": "ana@example.com"},
                    {"name": "Bo", "email": "bo@example.com"},
                ],
                "location": {"city": "Berlin", "room": "4.12"},
            },
        )
    ],
    "unicode-args": [
        (
            "save_note",
            {"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"},
        )
    ],
    "empty-args": [("get_server_time", {})],
    "forced-tool-choice": [],
    "tool-result-followup": [],
    "reasoning-then-call": [("record_answer", {"answer": "9.9"})],
}
EDIT = 'notes.py\n```\ngreeting = "bye"\n```\n'


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("scripted")
    path = folder / "scripted.gguf"
    made = Served(scripted_model.write(path, thoughts=scripted_model.THOUGHTS))
    yield made
    made.close()


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Served]:
    """A model that answers with a file."""
    made = Served(scripted_model.write(tmp_path / "editor.gguf", (EDIT,), context=1 << 15))
    yield made
    made.close()


def interpreter(package: str) -> str:
    """An interpreter with a package; skips the test where there is none."""
    found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    for python in (sys.executable, *os.environ.get("CLIENTS_PYTHON", "").split(os.pathsep)):
        if python and subprocess.run([python, "-c", found], check=False).returncode == 0:
            return python
    pytest.skip(f"no interpreter in CLIENTS_PYTHON has the package {package}")


def run(command: list[str], cwd: Path | None = None) -> None:
    found = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("package", "script"),
    [
        ("langchain_openai", "langchain_chain"),
        ("llm", "llm_command"),
        ("open_webui", "open_webui_answer"),
    ],
)
def test_a_python_client(scripted: Served, package: str, script: str) -> None:
    python = interpreter(package)
    run([python, str(CLIENTS / f"{script}.py"), scripted.server.address, "scripted"])
    assert scripted.running == 0


def test_aider_edits_a_file(editor: Served) -> None:
    python = interpreter("aider")
    run([python, str(CLIENTS / "aider_edit.py"), editor.server.address, "editor"])


def test_npm_packages(scripted: Served, tmp_path: Path) -> None:
    folder = Path(os.environ.get("CLIENTS_NODE", ""), "node_modules")
    node = shutil.which("node")
    if node is None or not (folder / "@ai-sdk" / "openai-compatible").is_dir():
        pytest.skip("CLIENTS_NODE has no node_modules with openai, ai and @ai-sdk")
    (tmp_path / "node_modules").symlink_to(folder)
    shutil.copy(CLIENTS / "npm_packages.mjs", tmp_path)
    run([node, "npm_packages.mjs", scripted.server.address, "scripted"], tmp_path)
    assert scripted.running == 0


def test_the_probe_of_canitoolcall_is_clean_with_the_starter(starter_model: Path) -> None:
    python = interpreter("canitoolcall")
    made = Served(starter_model)
    try:
        script = str(CLIENTS / "tool_call_probe.py")
        run([python, script, made.server.address, starter_model.stem])
    finally:
        made.close()


def test_the_probe_of_canitoolcall_is_clean_where_a_model_may_call(tmp_path: Path) -> None:
    python = interpreter("canitoolcall")
    for name, calls in CALLS.items():
        thoughts = scripted_model.THOUGHTS if name.startswith("reasoning") else ()
        answer = scripted_model.calls(*calls) if calls else scripted_model.ANSWER
        path = tmp_path / f"{name}.gguf"
        scripted_model.write(path, answer, thoughts=thoughts, context=1 << 13)
    options = ServerOptions(service=ServiceOptions(folders=lambda: [tmp_path]))
    made = Served(options=options)
    try:
        run([python, str(CLIENTS / "tool_call_probe.py"), made.server.address])
    finally:
        made.close()


def sum_of(served: Served, question: str, choice: str) -> float:
    """The log probability of a choice by the engine itself."""
    whole = served.post("/tokenize", {"content": f"{question} {choice}"})["tokens"]
    before = len(served.post("/tokenize", {"content": question})["tokens"])
    found = served.ask(Score(tuple(whole)), Scored)
    return sum(one.logprob for one in found.tokens[before:])


def test_a_score_of_lm_eval_is_the_engines_own(served: Served, tmp_path: Path) -> None:
    python = interpreter("lm_eval")
    rows = [{"question": ask, "choices": given, "answer": 0} for ask, given in QUESTIONS]
    data, output = tmp_path / "data.jsonl", tmp_path / "output.json"
    data.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    script = str(CLIENTS / "lm_eval_task.py")
    run([python, script, served.server.address, "tiny-served", str(data), str(output)])
    found = json.loads(output.read_text(encoding="utf-8"))
    own = [[sum_of(served, ask, choice) for choice in given] for ask, given in QUESTIONS]
    for scores, sums in zip(found["scores"], own, strict=True):
        assert scores == pytest.approx(sums, abs=1e-6)
    best = [max(range(len(sums)), key=sums.__getitem__) == 0 for sums in own]
    assert found["accuracy"] == sum(best) / len(best)
