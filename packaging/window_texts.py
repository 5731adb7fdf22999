"""Finds the strings of the window in the source: those passed to tr, and those that are not.

A string in the code is told from a text by how it looks (words, or one capitalized word) and by
where it stands. What only looks like a text is listed in the test that uses this module.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CATALOG = "resources/catalog.json"  # one of its lines holds one description
_DESCRIPTION = re.compile(r'"description": (".*")')
TRANSLATING = ("tr", "trn")
# Tables of texts that are passed to tr where they are shown: by module or folder, the names of constructors
# of their rows, with the arguments that are texts, and of the variables that hold them.
TABLES: dict[str, dict[str, tuple[int | str, ...]]] = {
    "app/settings/": {
        "Setting": (0, 1, 2, "unit", "words", "named", "exact"),
        "replace": ("help", "words"),
    },
    "app/actions.py": {"Action": (1, "group"), "OtherKey": (0, 1)},
    "app/ui/chat/empty_view.py": {"SUGGESTIONS": ()},
}
_LOOKS_LIKE_TEXT = re.compile(
    r"[A-Za-z]{2}[^\n]* \S|[A-Za-z} ] [^\n]*[A-Za-z]{2}|^[A-Z][a-z]{2,}\W*$"
)
_STYLE = re.compile(r"[\w-]+: [^;]+;")  # of a style sheet
_SILENT = ("cast", "getLogger", "TypeVar", "NewType", "getattr", "setattr", "hasattr")
_ENUMS = ("Enum", "StrEnum", "IntEnum", "Flag")


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal that looks like a text of the window."""

    line: int
    text: str  # `{…}` for the values of an f-string
    shown: bool  # passed to tr, or in a table whose texts are
    plural: str = ""  # the second text of a trn


def tables_of(name: str) -> dict[str, tuple[int | str, ...]]:
    """The tables of a module, which is named by its file."""
    found = (tables for place, tables in TABLES.items() if name.startswith(place))
    return {constructor: places for tables in found for constructor, places in tables.items()}


def texts(source: str, tables: dict[str, tuple[int | str, ...]] | None = None) -> list[Text]:
    """The texts of a module, in the order of its lines; `tables` as in `TABLES`."""
    found = _Finder(tables or {}).walk(ast.parse(source), shown=False)
    return list(dict.fromkeys(sorted(found, key=lambda text: text.line)))


def shown_texts(root: Path) -> Iterator[tuple[str, Text]]:
    """Every text of the window with the file it is in, relative to the repository."""
    for path in sorted((root / "app").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        for text in texts(path.read_text(encoding="utf-8"), tables_of(name)):
            if text.shown:
                yield name, text
    for number, line in enumerate((root / CATALOG).read_text(encoding="utf-8").splitlines(), 1):
        if found := _DESCRIPTION.search(line):
            yield CATALOG, Text(number, json.loads(found[1]), True)


def listing(root: Path) -> str:
    """Every text of the window as `file:line: text`, one per line."""
    return "\n".join(
        f"{name}:{text.line}: {form!r}"
        for name, text in shown_texts(root)
        for form in filter(None, (text.text, text.plural))
    )


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """All calls of tr and trn."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in TRANSLATING:
            yield node


def calls_at_import(tree: ast.Module) -> list[int]:
    """Lines of the calls of tr and trn that run when the module is imported."""
    found = (node for node in _run_at_import(tree) if isinstance(node, ast.Call))
    return sorted(call.lineno for call in found if _is_translating(call))


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run at import: bodies of functions do not, their defaults do."""
    yield node
    inner: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        inner = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    elif isinstance(node, ast.Lambda):
        inner = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    for child in inner:
        yield from _run_at_import(child)


class _Finder:
    """Finds the texts in a syntax tree."""

    def __init__(self, tables: dict[str, tuple[int | str, ...]]) -> None:
        self._tables = tables

    def walk(self, node: ast.AST, *, shown: bool) -> Iterator[Text]:
        """The texts inside a node; `shown` if an outer call or table passes them to tr."""
        if _is_plural(node):
            one, many = (str(_text(part)) for part in node.args[:2])  # type: ignore[attr-defined]
            yield Text(node.lineno, one, True, many)  # type: ignore[attr-defined]
        text = _text(node)
        if text and (shown or _looks_like_text(text)):
            yield Text(node.lineno, text, shown)  # type: ignore[attr-defined]
        for child in _children(node):
            yield from self.walk(child, shown=self._passes_on(node, child, shown=shown))

    def _passes_on(self, node: ast.AST, child: ast.AST, *, shown: bool) -> bool:
        """Whether the texts of a child reach tr."""
        match node:
            case ast.Call() if _is_translating(node):
                return child in node.args and not _is_plural(node)
            case ast.Call() if _name(node.func) in self._tables:
                places = self._tables[_name(node.func)]
                if isinstance(child, ast.keyword):
                    return child.arg in places
                return child in node.args and node.args.index(child) in places  # type: ignore[arg-type]
            case ast.Assign():
                return any(_name(target) in self._tables for target in node.targets)
            case ast.Tuple() | ast.keyword():
                return shown
            case _:
                return False


def _looks_like_text(text: str) -> bool:
    return bool(_LOOKS_LIKE_TEXT.search(text)) and not _STYLE.search(text)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that may hold texts of the window."""
    skipped: list[ast.AST | None] = []
    match node:
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            skipped += [part for part in node.body if _is_docstring(part)]
            if isinstance(node, ast.ClassDef) and any(_name(base) in _ENUMS for base in node.bases):
                skipped += [part for part in node.body if isinstance(part, ast.Assign)]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                skipped.append(node.returns)
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.arg():
            return
        case ast.AnnAssign() if not _has_call(node.annotation):  # the table of settings has some
            skipped.append(node.annotation)
        case ast.Assert():
            skipped.append(node.msg)
        case ast.Call():
            logs = isinstance(node.func, ast.Attribute) and _name(node.func.value) == "_log"
            if logs or _name(node.func) in _SILENT:
                return
        case ast.JoinedStr():
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    yield part.value
            return
        case _:
            pass
    if _is_plural(node):
        skipped += node.args[:2]  # type: ignore[attr-defined]
    yield from (child for child in ast.iter_child_nodes(node) if child not in skipped)


def _has_call(annotation: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) for each in ast.walk(annotation))


def _is_translating(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) in TRANSLATING


def _is_plural(node: ast.AST) -> bool:
    """Whether a node is a call of trn with two literals."""
    if not (isinstance(node, ast.Call) and _name(node.func) == "trn"):
        return False
    return len(node.args) > 1 and all(map(_text, node.args[:2]))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _text(node: ast.AST) -> str | None:
    """The string of a literal or an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values
        ]
        return "".join(parts)
    return None


def _name(node: ast.AST) -> str:
    """The last name of `name` or `module.name`; empty for others."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
