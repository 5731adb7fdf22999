"""Wheels: what is inside, and that the installed package starts from its own folder."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import wheels
from environment import Trouble
from kernels.cpu import build

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if build.current() is None:
        pytest.skip("the native kernels are not built, and building them takes minutes")
    folder = tmp_path_factory.mktemp("wheel")
    made = wheels.run_hatchling(folder)
    assert list(folder.iterdir()) == [made]
    return made


def test_a_wheel_contains_the_program_and_its_kernels_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    program = {
        f"tokonoma/{path.relative_to(ROOT).as_posix()}"
        for part in ("app", "engine", "kernels", "resources")
        for path in (ROOT / part).rglob("*")
        if path.is_file() and (path.suffix in (".py", ".metal") or part == "resources")
        if not {"__pycache__", "readme"} & set(path.relative_to(ROOT).parts)
    }
    own = {"tokonoma/__init__.py", "tokonoma/__main__.py", "tokonoma/resources/changelog.md"}
    library = build.current()
    assert library is not None
    assert names == program | own | {f"tokonoma/kernels/cpu/lib/{library.name}"}


def test_a_wheel_names_its_platform_and_commands(wheel: Path) -> None:
    assert wheel.name.split("-", 2)[2].startswith("py3-none-")
    assert not wheel.name.endswith("-any.whl")
    commands = configparser.ConfigParser()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        commands.read_string(archive.read(name).decode())
    assert dict(commands["console_scripts"]) == {
        "tokonoma": "tokonoma:open_window",
        "tokonoma-engine": "tokonoma:run_engine",
    }
    assert dict(commands["gui_scripts"]) == {"tokonoma-gui": "tokonoma:open_window"}


def test_an_installed_package_answers_from_its_own_folder(wheel: Path, tmp_path: Path) -> None:
    """Also its window's resources and its native kernels are found there, and none of a checkout."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        "import sys, tokonoma; sys.argv = ['tokonoma-engine', 'info', '--help']\n"
        "try: tokonoma.run_engine()\n"
        "except SystemExit as end: assert not end.code\n"
        "from app.system import paths\n"
        "from kernels.cpu import library\n"
        "import engine\n"
        "assert library.available(), library.reason()\n"
        "print(paths.resources(), engine.__file__, sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TOKONOMA_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("usage: tokonoma-engine info")
    inside = tmp_path / "tokonoma"
    assert lines[-2:] == [str(inside / "resources"), str(inside / "engine" / "__init__.py")]


def test_a_wheel_of_an_unknown_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="'amiga'; wheels are made for manylinux_2_28_x86_64"):
        wheels.run_hatchling(tmp_path, "amiga")


@pytest.mark.slow
def test_pip_installs_the_folder_and_the_program_answers(tmp_path: Path) -> None:
    """`pip install .` with all dependencies from the package index; one question without a window."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([programs / "python", "-m", "pip", "install", "-q", "."], cwd=ROOT, check=True)
    done = subprocess.run(
        [programs / "tokonoma", "--smoke"],
        cwd=tmp_path,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tokens/s" in done.stdout


@pytest.mark.skipif(sys.platform == "darwin", reason="would load the made-up library")
def test_a_wheel_takes_the_library_that_was_built_for_its_platform(tmp_path: Path) -> None:
    try:
        compiler = build.find_compiler("zig")
    except build.NoCompiler:
        pytest.skip("needs ziglang")
    there = build.library_path(compiler, target=build.Target("aarch64", "darwin"))
    if there.is_file():
        pytest.skip(f"{there.name} was built")
    there.parent.mkdir(exist_ok=True)
    there.write_bytes(b"built before")
    try:
        made = wheels.run_hatchling(tmp_path, "macosx_13_0_arm64")
    finally:
        there.unlink()
    assert made.name.endswith("-py3-none-macosx_13_0_arm64.whl")
    with zipfile.ZipFile(made) as archive:
        assert archive.read(f"tokonoma/kernels/cpu/lib/{there.name}") == b"built before"
