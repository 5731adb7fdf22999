"""Repository-wide rules: docstrings, file sizes, pins, start-up without torch, message types."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import types
import typing
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import app
import family_table
import file_map
from engine import Fault, ModelLoaded, messages
from engine.models import ARCHITECTURES

ROOT = Path(__file__).parent.parent
LONGEST_FILE = 700  # lines; a file is one thing
LONGEST_README = 200  # lines, 30 of them the table of model families
LARGEST_FILE = 1_000_000  # bytes
LARGE_FILES = {
    "tests/golden/gemma3_logits.npz",
    "tests/golden/oracle.npz",
    "tests/golden/smollm2_logits.npz",
    "tests/golden/tiny_logits.npz",
    "tests/golden/transformers.npz",
}
# Engine modules the window may import at start-up; the others are imported after the first paint.
LIGHT_ENGINE = {
    "engine",
    "engine.cancelled_events",
    "engine.child",
    "engine.client",
    "engine.core",
    "engine.core.cancellation",
    "engine.core.handle",
    "engine.core.queue",
    "engine.core.residents",
    "engine.machine",
    "engine.loading",
    "engine.state",
    "engine.state.disk",
    "engine.state.disk.atomic",
    "engine.state.disk.cleanup",
    "engine.state.disk.page_file",
    "engine.state.disk.sequence_file",
    "engine.machine.device",
    "engine.machine.disk_files",
    "engine.machine.gpu_support",
    "engine.machine.gpu_wheels",
    "engine.machine.nvidia",
    "engine.machine.file_lock",
    "engine.machine.torch_library",
    "engine.errors",
    "engine.local_server",
    "engine.server",
    "engine.server.bridge",
    "engine.loading.identity",
    "engine.loading.inspect",
    "engine.loading.library",
    "engine.loading.memory",
    "engine.messages",
    "engine.processes",
    "engine.processes.frames",
    "engine.processes.pool",
    "engine.processes.restrictions",
    "engine.prometheus",
    "engine.vision",
    "engine.vision.encoder_names",
    "engine.vision.picture_task",
    "engine.vision.refusals",
    "engine.messages.requests",
    "engine.messages.events",
    "engine.messages.reasoning_markers",
    "engine.messages.tagged_text",
    "engine.messages.values",
    "engine.core.loop",
    "engine.state.disk.folder",
}
LIGHT_KERNELS = {"kernels", "kernels.weights", "kernels.weights.formats"}  # names of formats
HEAVY = (
    "torch",
    "numpy",
    "tokenizers",
    "llguidance",
    "gguf",
    "jinja2",
    "kernels",
    "httpx",
    "httpcore",
    "http",
    "starlette",
    "uvicorn",
)
PACKAGES = ("app", "engine", "kernels")
VALUE_TYPES = (
    Fault,
    messages.Blindness,
    messages.Infill,
    messages.TextPart,
    messages.ReasoningPart,
    messages.ImagePart,
    messages.ToolCall,
    messages.ToolResult,
    messages.Turn,
    messages.Tool,
    messages.Sampling,
    messages.AdapterUse,
    messages.Constraint,
    messages.AdapterInfo,
    messages.SlowPart,
    messages.Logprob,
    messages.TokenLogprobs,
    messages.LogitsRow,
    messages.Histogram,
    messages.DeviceInfo,
    messages.DevicePart,
    messages.DeviceRefusal,
)


def imported(path: Path, modules: set[str]) -> set[str]:
    """The modules a file imports, also in functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules) or {node.module}
    return found & modules


@pytest.mark.sweep
def test_there_are_no_import_cycles() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert len(paths) > 100
    graph = {name: imported(path, set(paths)) - {name} for name, path in paths.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])), pytrace=False)


def tracked() -> list[Path]:
    """Files that git tracks or would add, so that a new file is checked before its first commit."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def modules() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def commands_and_events() -> list[type]:
    return [*typing.get_args(messages.Request), *typing.get_args(messages.Event)]


@pytest.mark.sweep
def test_every_module_has_a_docstring_whose_first_paragraph_is_a_sentence() -> None:
    undocumented = []
    for path in modules():
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if not docstring or not docstring.split("\n\n")[0].strip().endswith("."):
            undocumented.append(name_of(path))
    assert undocumented == []


@pytest.mark.sweep
def test_every_text_file_is_read_and_written_with_a_named_encoding() -> None:
    """Ruff's rule knows only paths whose type it can infer; the default of Windows is not UTF-8."""
    without = []
    for path in (each for each in tracked() if each.suffix == ".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            most = {"read_text": 0, "write_text": 1}.get(node.func.attr)
            named = len(node.args) > (most or 0) or any(
                each.arg in ("encoding", None) for each in node.keywords
            )
            if most is not None and not named:
                without.append(f"{name_of(path)}:{node.lineno}")
    assert without == []


def test_no_module_is_longer_than_the_limit() -> None:
    lengths = {name_of(path): len(path.read_bytes().splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_the_map_lists_every_module_except_the_tests() -> None:
    rows = [line.split(maxsplit=1) for line in file_map.file_map(ROOT).splitlines()]
    mapped = sorted(row[0] for row in rows if row[0].endswith(".py"))
    listed = [path.name for path in modules() if path.relative_to(ROOT).parts[0] in file_map.ROOTS]
    unlisted = ("__init__.py", "test_")
    assert mapped == sorted(name for name in listed if not name.startswith(unlisted))
    assert [row[0] for row in rows if row[0].endswith(".py") and len(row) == 1] == []


def test_the_readme_is_within_its_length_limit() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST_README


def test_the_readme_lists_every_model_family() -> None:
    rows = " ".join(names for _, names, _ in family_table.ROWS).split()
    assert set(rows) >= set(ARCHITECTURES)
    assert len(set(rows)) == len(rows)
    rewrite = "run tests/support/family_table.py to write it again"
    assert family_table.listed() == family_table.table(), rewrite


@pytest.mark.parametrize("page", ["README.md", "kernels/README.md", "tests/golden/README.md"])
def test_a_readme_names_only_existing_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    folders = "app|engine|kernels|packaging|resources|tests"
    named = set(re.findall(rf"`((?:{folders})/[\w./-]+\w)`", text))
    named |= set(re.findall(r"\]\(([\w./-]+)\)", text))
    assert len(named) > 8
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("module", ["app.ui.window", "app.chat.controller", "app.__main__"])
def test_importing_the_window_loads_neither_torch_nor_the_inner_engine(module: str) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    seen = loaded.stdout.split()
    heavy = [name for name in seen if name.split(".")[0] in HEAVY and name not in LIGHT_KERNELS]
    inner = [name for name in seen if name.split(".")[0] == "engine" and name not in LIGHT_ENGINE]
    assert module in seen
    assert (heavy, inner) == ([], [])


@pytest.mark.parametrize("message", [*commands_and_events(), *VALUE_TYPES])
def test_messages_are_frozen_and_made_of_plain_values(message: type) -> None:
    assert dataclasses.is_dataclass(message)
    assert message.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hasattr(message, "__slots__")
    hints = typing.get_type_hints(message)
    assert {name: hint for name, hint in hints.items() if not is_plain(hint)} == {}
    if message in typing.get_args(messages.Event):
        assert hints["request"] is int


def is_plain(hint: object) -> bool:
    """Whether a type is plain immutable data, safe to pass between threads and processes."""
    if typing.get_origin(hint) is tuple:
        return all(inner is Ellipsis or is_plain(inner) for inner in typing.get_args(hint))
    if isinstance(hint, types.UnionType):
        return all(inner is type(None) or is_plain(inner) for inner in typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return True
    if hint == Mapping[str, object]:  # a JSON object, which nobody changes
        return True
    return hint in (str, bytes, int, float, bool, Path, ModelLoaded, *VALUE_TYPES)


@pytest.mark.parametrize(
    "hint", [list[int], dict[str, int], object, tuple[bytearray, ...], type(None)]
)
def test_other_types_are_not_plain(hint: object) -> None:
    assert not is_plain(hint)


def test_pins_are_exact_and_within_the_declared_ranges() -> None:
    pinned = pins()
    wrong = [str(one) for one in declared() if pinned.get(normal(one.name)) not in one.specifier]
    assert wrong == []


def test_every_package_the_program_imports_is_declared_and_pinned() -> None:
    providers = importlib.metadata.packages_distributions()
    imported = {
        normal(name): module
        for module in imported_modules()
        if module not in sys.stdlib_module_names and module not in PACKAGES
        for name in providers.get(module, [module])
    }
    assert len(imported) > 8
    imported.pop("triton", None)  # only of the CUDA backend; the CUDA build of torch brings it
    names = {normal(one.name) for one in declared()}
    assert {name: module for name, module in imported.items() if name not in names} == {}
    assert {name: module for name, module in imported.items() if name not in pins()} == {}


def imported_modules() -> set[str]:
    """The top-level modules that the program imports anywhere, also inside functions."""
    found: set[str] = set()
    for path in modules():
        if name_of(path).split("/")[0] not in PACKAGES:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found


def pins() -> dict[str, str]:
    """Package to version, as requirements.txt pins them."""
    lines = (ROOT / "packaging" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    stated = [one for line in lines if (one := line.split("#")[0].strip())]
    return {normal(name): version for name, version in (one.split("==") for one in stated)}


def declared() -> list[Requirement]:
    """The dependencies that pyproject.toml declares, those of extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return [Requirement(line) for line in [*project["dependencies"], *extras]]


def normal(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "packaging" / "changelog.md").read_text(encoding="utf-8")
    assert app.__version__ == project["version"]
    assert f"## {app.__version__}\n" in changelog


@pytest.mark.parametrize("folder", ["packaging", "tests"])
def test_packaging_and_tests_are_not_packages(folder: str) -> None:
    assert list((ROOT / folder).rglob("__init__.py")) == []


def test_resources_hold_no_code() -> None:
    assert list((ROOT / "resources").rglob("*.py")) == []


def test_every_bundled_font_has_its_licence() -> None:
    families = {path.stem.split("-")[0] for path in (ROOT / "resources" / "fonts").iterdir()}
    licences = {path.stem.split("-")[0] for path in (ROOT / "resources" / "licences").iterdir()}
    assert families
    assert families <= licences


def test_only_recorded_outputs_are_large() -> None:
    large = {name_of(path) for path in tracked() if path.stat().st_size > LARGEST_FILE}
    assert large <= LARGE_FILES
