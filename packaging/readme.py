"""Generates README.md's file map, from module docstrings, and its support matrix."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from environment import Trouble, child_environment, last_lines

# Folders without an __init__.py to speak for them; the map follows this order.
FOLDERS = {
    "app": "",
    "engine": "",
    "kernels": "",
    "packaging": "the developer command, the exact pins, the changelog",
    "resources": "fonts, icons and licence texts; data only",
    "tests": "mirror the packages: test_<module>.py; golden/ holds recorded outputs",
    "tests/benchmarks": "what `packaging/dev.py bench` runs",
}


def generated(text: str, file_map: str, matrix: str) -> str:
    """The README text with both generated parts replaced."""
    for name, body in (("map", file_map), ("matrix", matrix)):
        pattern = rf"(<!-- {name}: generated -->\n).*?(<!-- end of {name} -->)"
        if not re.search(pattern, text, re.DOTALL):
            raise Trouble(
                f"README.md has lost its markers for the generated {name}; put them back."
            )
        text = re.sub(
            pattern, lambda found, body=body: f"{found[1]}{body}\n{found[2]}", text, flags=re.DOTALL
        )
    return text


def file_map(root: Path) -> str:
    """Every module with the first line of its docstring, as one code block."""
    rows = [
        row
        for name, said in FOLDERS.items()
        if any((root / name).glob("[!_]*"))
        for row in _folder(root, root / name, said)
    ]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{text}".rstrip() for name, text in rows]
    return "\n".join(["```", *lines, "```"])


def matrix(root: Path, python: Path) -> str:
    """What `python -m kernels` prints; as a code block unless it is a table already."""
    printed = subprocess.run(
        [python, "-m", "kernels"],
        cwd=root,
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    if printed.returncode != 0:
        raise Trouble(f"{last_lines(printed.stderr)}\n`python -m kernels` failed, as above.")
    text = printed.stdout.strip()
    return text if text.startswith("|") else f"```\n{text}\n```"


def _folder(root: Path, folder: Path, said: str) -> Iterator[tuple[str, str]]:
    """The rows of one folder: itself, its modules, then the folders in it."""
    depth = len(folder.relative_to(root).parts)
    indent = "  " * (depth - 1)
    init = folder / "__init__.py"
    yield f"{indent}{folder.name}/", said or _first_line(init)
    for module in sorted(folder.glob("*.py")):
        if module != init and not module.name.startswith("test_"):
            yield f"{indent}  {module.name}", _first_line(module)
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        if (inner / "__init__.py").exists():
            yield from _folder(root, inner, "")


def _first_line(module: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n")[0].removesuffix(".")
