"""Repository map: lists every module with the first line of its docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOTS = ("app", "engine", "kernels", "packaging", "tests")
# Folders without an __init__.py to describe them.
DESCRIPTIONS = {
    "packaging": "the developer command, the exact pins, the changelog",
    "tests": "mirror the packages: test_<module>.py; golden/ holds recorded outputs",
    "tests/benchmarks": "the scripts that `packaging/dev.py bench` runs",
}


def file_map(root: Path) -> str:
    """Every module except the tests, by folder, one per line."""
    rows = [row for name in ROOTS for row in _rows(root, root / name)]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{text}".rstrip() for name, text in rows)


def _rows(root: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Rows of one folder: the folder, its modules, then its subfolders that contain modules."""
    place = folder.relative_to(root)
    indent = "  " * len(place.parts)
    init = folder / "__init__.py"
    listed = [path for path in sorted(folder.glob("*.py")) if path != init]
    described = DESCRIPTIONS.get(place.as_posix()) or (_first_line(init) if init.exists() else "")
    rows = [
        (f"{indent}{path.name}", _first_line(path))
        for path in listed
        if not path.name.startswith("test_")
    ]
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        rows += _rows(root, inner)
    if rows or init.exists():
        yield f"{indent[2:]}{folder.name}/", described
        yield from rows


def _first_line(module: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n")[0].removesuffix(".")
