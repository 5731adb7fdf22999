"""Mutation sampling: changes the product in small random ways and looks which test notices.

Each change is made in a copy of the repository, where the nearest tests run: those that are named
like the module, and those near it that speak most of what is changed. A change that none of them
notices wants a test, or a reason why it changes nothing.
"""

from __future__ import annotations

import ast
import random
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path

from environment import child_environment, say

PACKAGES = ("app", "engine", "kernels")
MOST_FILES = 8  # test files for each change
FILE_SECONDS = 120  # time limit of a test file
_LEFT_OUT = ("kernels/cuda/jit",)  # Triton's language, which no test on the processor covers
_IGNORED = (".git", ".venv", "build", "__pycache__")
_SHOWN_CALLS = {"tr", "log", "logging", "warnings", "say", "print"}  # of texts: not changed
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


@dataclass(frozen=True)
class Change:
    """A change of one file: these bytes of it become others."""

    path: str  # relative to the repository
    line: int
    start: int
    end: int
    text: str
    words: str  # what is changed into what

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


@dataclass(frozen=True)
class Outcome:
    """What the nearest tests said of a change."""

    change: Change
    result: str  # "killed", "crashed", "timed out", "survived" or "no tests"
    test: str = ""  # the one that noticed it
    files: int = 0  # test files that ran


def sample(
    root: Path, count: int, seed: int, paths: Sequence[str] = (), python: str = sys.executable
) -> list[Outcome]:
    """Try so many random changes of the product's files, or of those in `paths`; prints each.

    `python` runs the tests, in a copy of the repository.
    """
    files = list(_files(root, paths))
    every = [change for path in files for change in changes(root, path)]
    random.Random(seed).shuffle(every)
    chosen = list(islice((one for one in every if _can_be_read(root, one)), count))
    say(f"{len(every):,} places in {len(files)} files; {len(chosen)} are tried.")
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*_IGNORED), symlinks=True)
        trial = Trial(copy, python)
        outcomes: list[Outcome] = []
        for change in chosen:
            outcomes.append(trial.run(change))
            say(_row(outcomes[-1]))
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """How many changes were noticed, and the places of those that were not."""
    noticed = sum(one.result in ("killed", "crashed", "timed out") for one in outcomes)
    tried = sum(one.result != "no tests" for one in outcomes)
    rate = f" ({noticed / tried:.0%})" if tried else ""
    lines = [f"{noticed} of {tried} changes were noticed{rate}."]
    left = [one for one in outcomes if one.result in ("survived", "no tests")]
    return "\n".join([*lines, *map(_row, left)])


def _row(one: Outcome) -> str:
    place = f"{one.change.path}:{one.change.line}"
    found = one.test or f"{one.files} test files"
    return f"{one.result:<9}  {place}\n    {one.change.words}\n    {found}"


# --- changes -------------------------------------------------------------------------------------


def changes(root: Path, path: str) -> list[Change]:
    """All changes that can be made of a file."""
    source = (root / path).read_bytes()
    return list(_Places(path, source).of(ast.parse(source)))


def _can_be_read(root: Path, change: Change) -> bool:
    """Whether the changed file is still Python."""
    try:
        ast.parse(change.apply((root / change.path).read_bytes()))
    except SyntaxError:
        return False
    return True


class _Places:
    """Finds the places of a file that can be changed."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        lines = source.splitlines(keepends=True)
        self.starts = list(accumulate(map(len, lines), initial=0))

    def of(self, node: ast.AST) -> Iterator[Change]:
        """The changes of a node and of those in it, but for types, texts and what is only shown."""
        if _is_left_out(node):
            return
        yield from self._of_one(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "msg"):
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from self.of(one)

    def _of_one(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield from self._between(left, right, *_COMPARISONS[type(op)])
            case ast.BinOp(left=left, op=ast.Add(), right=right) if not _is_text(left, right):
                yield from self._between(left, right, "+", "-")
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                yield from self._between(left, right, "-", "+")
            case ast.BoolOp(op=op, values=[left, right, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from self._between(left, right, *words)
            case ast.Constant(value=bool() as value):
                yield self._change(node, str(not value))
            case ast.Constant(value=int() | float() as value):
                yield self._change(node, str(value + 1))
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._change(value, "None", "return ")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield self._change(test, f"not ({self._text(test)})", "if ")
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
                yield self._change(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._change(node, "pass")

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Change]:
        """Another operator between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        words = rf"\b{old}\b".replace(" ", r"\s+")
        pattern = words if old[0].isalpha() else re.escape(old)
        if found := re.search(pattern.encode(), self.source[start:end]):
            first, last = start + found.start(), start + found.end()
            a, b = self._text(left), self._text(right)
            said = f"{_short(f'{a} {old} {b}')} → {new}"
            yield Change(self.path, left.lineno, first, last, new, said)

    def _change(self, node: ast.stmt | ast.expr, text: str, before: str = "") -> Change:
        start, end = self._span(node)
        words = f"{before}{_short(self._text(node))} → {before}{_short(text)}"
        return Change(self.path, node.lineno, start, end, text, words)

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.stmt | ast.expr) -> str:
        first, last = self._span(node)
        return self.source[first:last].decode()


def _is_left_out(node: ast.AST) -> bool:
    """Whether nothing in a node is changed: a text, a type, or what is said to a person."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.Call(func=func):
            return _root(func) in _SHOWN_CALLS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return _root(func) in _SHOWN_CALLS
    return False


def _root(node: ast.expr) -> str:
    """The first name of a dotted one; the last one if that is `tr`."""
    if isinstance(node, ast.Attribute):
        return "tr" if node.attr == "tr" else _root(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(*nodes: ast.expr) -> bool:
    """Whether one of some operands is a text, from which nothing can be subtracted."""
    return any(
        isinstance(one, ast.JoinedStr)
        or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
        for one in nodes
    )


def _short(text: str) -> str:
    return textwrap.shorten(text, 64, placeholder="…")


# --- tests ---------------------------------------------------------------------------------------


class Trial:
    """A copy of the repository in which changes are made and tests run."""

    def __init__(self, root: Path, python: str) -> None:
        self.root, self.python = root, python
        self.tests = sorted((root / "tests").rglob("test_*.py"))
        self.imports = {
            path: _imported(path)
            for name in (*PACKAGES, "tests")
            for path in sorted((root / name).rglob("*.py"))
        }
        self.words = {path: _words(path.read_text(encoding="utf-8")) for path in self.tests}
        self.uses = Counter(word for words in self.words.values() for word in words)
        self._passes: dict[str, bool] = {}  # whether a test passes without a change

    def run(self, change: Change) -> Outcome:
        """Make a change, run the nearest tests until one fails, and take the change back."""
        near = self.nearest(change)[:MOST_FILES]
        if not near:
            return Outcome(change, "no tests")
        path = self.root / change.path
        source = path.read_bytes()
        ran = 0
        for tests in near:
            path.write_bytes(change.apply(source))
            result, failed = self._tried(str(tests.relative_to(self.root)))
            path.write_bytes(source)
            ran += 1
            if failed and self._passes_unchanged(failed):
                return Outcome(change, result, failed, ran)
        return Outcome(change, "survived", files=ran)

    def nearest(self, change: Change) -> list[Path]:
        """The nearest test files: by name, then those near it that speak most of what is changed.

        Near are those that import the module, or what imports it, and those of its folder or, if
        these are few, of the folder around it. Rare words count more, as in the search of texts.
        """
        place = Path(change.path)
        module = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        stem = place.parent.name if place.stem == "__init__" else place.stem
        named = {f"test_{stem}.py", f"test_{place.parent.name}_{stem}.py"}
        folder = self.root / "tests" / place.parent
        by_name = [one for one in self.tests if one.name in named and one.parent == folder]
        users = {one for one, names in self.imports.items() if module in names}
        helpers = {_module(self.root, one) for one in users if one not in self.tests}
        near = {one for one in self.tests if one in users or self.imports[one] & helpers}
        while folder != self.root / "tests" and (not folder.is_dir() or len(near) < MOST_FILES):
            near |= {one for one in self.tests if folder in one.parents}
            folder = folder.parent
        around = _words(_around(self.root / change.path, change.line)) | _words(stem)

        def relevance(test: Path) -> float:
            words = self.words[test]
            shared = sum(1 / self.uses[word] for word in around & words)
            return (1.5 if test in users else 1.0) * shared / (len(words) + 1) ** 0.5

        return list(dict.fromkeys([*by_name, *sorted(near, key=relevance, reverse=True)]))

    def _passes_unchanged(self, test: str) -> bool:
        """Whether a test, or a whole file, passes in time without a change."""
        if test not in self._passes:
            self._passes[test] = not self._tried(test)[1]
        return self._passes[test]

    def _tried(self, tests: str) -> tuple[str, str]:
        """How tests end, and the first that fails, or the file if that is not known; "" if none."""
        command = [self.python, "-m", "pytest", "-x", "-q", "-rfE", tests]
        # Changed files can have the size and the second of the ones that were compiled before.
        settings = child_environment(
            QT_QPA_PLATFORM="offscreen", PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1"
        )
        try:
            done = subprocess.run(
                [*command, "-p", "no:cacheprovider"],
                cwd=self.root,
                env=settings,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=FILE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "timed out", tests
        if done.returncode in (0, 5):  # 5: no test was selected
            return "survived", ""
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
        return ("killed", found[1]) if found else ("crashed", tests)


def _words(text: str) -> set[str]:
    """The words of names and of prose, without the shortest."""
    return {word.lower() for word in re.findall(r"[A-Za-z][a-z]{3,}|[A-Z]{4,}", text)}


def _around(path: Path, line: int) -> str:
    """The source of the innermost function or class that has a line, or of the whole file."""
    source = path.read_text(encoding="utf-8")
    holders = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not holders:
        return source
    return ast.get_source_segment(source, max(holders, key=lambda node: node.lineno)) or ""


def _module(root: Path, path: Path) -> str:
    """The name by which a file is imported; helpers of tests have no package."""
    place = path.relative_to(root)
    if place.parts[0] == "tests":
        return place.stem
    return ".".join(place.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    """The modules that a file imports, and the names it imports from them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


# --- files ---------------------------------------------------------------------------------------


def _files(root: Path, paths: Sequence[str]) -> Iterator[str]:
    """The product's files in some paths, relative to the repository."""
    for name in paths or PACKAGES:
        place = root / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            found = path.relative_to(root).as_posix()
            if not found.startswith(_LEFT_OUT):
                yield found
