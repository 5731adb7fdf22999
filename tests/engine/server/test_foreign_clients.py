"""Programs of others, unchanged, against the server with a model that answers by heart.

Their packages need versions that this project does not: CLIENTS_PYTHON has the interpreters that
have them, and CLIENTS_NODE the folder with `node_modules`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import scripted_model
from serving import Served

pytestmark = pytest.mark.slow
CLIENTS = Path(__file__).parent / "clients"
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
