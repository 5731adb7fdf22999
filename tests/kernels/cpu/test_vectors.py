"""Vectors: each instruction set's file does what plain arithmetic says, and defines the same names.

The kernels are written once over these names, so a wrong one shows here by name, before it shows
there as a wrong product. Sets of another architecture run under an emulator, where there is one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernels.cpu import build, library

DRIVER = Path(__file__).parents[2] / "native" / "vectors.cpp"
NAME = re.compile(
    r"^(?:template <[^>]*> )?(?:static inline|NK_NOINLINE) [\w ]+?[ *](\w+)\(", re.MULTILINE
)
DEFINITION = re.compile(r"^#define (NK_\w+)(?: (.+))?$", re.MULTILINE)
EMULATOR = "qemu-aarch64-static"
FLAGS = ("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti", "-ffp-contract=off")
WARNINGS = ("-Wall", "-Wextra", "-Werror")
# GCC before 13 says of its own AVX-512 header that a value is used before it is set.
QUIET = ("-Wno-uninitialized", "-Wno-maybe-uninitialized")


def names_of(path: Path) -> set[str]:
    """The functions that a vector file defines at its top level."""
    return set(NAME.findall(path.read_text("utf-8")))


def definitions_of(name: str) -> list[str]:
    """What isa_<name>.cpp defines before it includes the kernels, as compiler flags."""
    found = DEFINITION.findall((build.NATIVE / "isa" / f"isa_{name}.cpp").read_text("utf-8"))
    return [f"-D{key}={value}" for key, value in found]


def run(command: Sequence[str]) -> None:
    """One step of a build."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def made(name: str, compiler: build.Compiler, folder: Path, target: Sequence[str] = ()) -> Path:
    """The driver compiled for one instruction set."""
    entry = build.INSTRUCTION_SETS[name]
    flags = entry.zig_flags if compiler.zig and entry.zig_flags else entry.flags
    quiet = QUIET if name in ("zen4", "avx512") else ()
    source = (*definitions_of(name), "-I", str(build.NATIVE), "-c", str(DRIVER))
    part, program = folder / f"vectors-{name}.o", folder / f"vectors-{name}"
    run((*compiler.command, *target, *FLAGS, *WARNINGS, *quiet, *flags, *source, "-o", str(part)))
    # Linked as C, and for no instruction set: zig would build a C++ library, and a C one for each.
    linker = ["cc" if word == "c++" and compiler.zig else word for word in compiler.command]
    run((*linker, *target, str(part), "-lm", "-o", str(program)))
    return program


def agrees(command: Sequence[str]) -> None:
    """The driver ran to its end and found nothing wrong."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\nended with {ran.returncode}"
    assert re.search(r"\d{6,} checks, 0 failures", ran.stdout)


@pytest.mark.sweep
@pytest.mark.parametrize("name", library.instruction_sets() or ("scalar",))
def test_vectors_do_what_plain_arithmetic_says(name: str, tmp_path: Path) -> None:
    try:
        compiler = build.find_compiler()
    except build.NoCompiler as absent:
        pytest.skip(str(absent))
    agrees([str(made(name, compiler, tmp_path))])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["neon", "i8mm"])
def test_vectors_of_arm_do_so_under_an_emulator(name: str, tmp_path: Path) -> None:
    if build.host().architecture == "aarch64" or shutil.which(EMULATOR) is None:
        pytest.skip(f"runs elsewhere, with {EMULATOR}")
    try:
        zig = build.find_compiler("zig")
    except build.NoCompiler as absent:
        pytest.skip(str(absent))
    target = ("-target", "aarch64-linux-musl", "-static")
    agrees([EMULATOR, str(made(name, zig, tmp_path, target))])


@pytest.mark.parametrize("file", ["vec_avx2.inc", "vec_neon.inc", "vec_scalar.inc"])
def test_every_file_defines_the_names_the_kernels_use(file: str) -> None:
    wanted = names_of(build.NATIVE / "isa" / "vec_avx512.inc")
    assert len(wanted) > 40
    assert wanted <= names_of(build.NATIVE / "isa" / file)


def test_every_name_is_tried() -> None:
    sources = DRIVER, DRIVER.with_name("vectors_float.inc")
    driver = "".join(path.read_text("utf-8") for path in sources)
    untried = {
        name
        for name in names_of(build.NATIVE / "isa" / "vec_avx512.inc")
        if f"{name}(" not in driver
    }
    untried -= {name for name in untried if f"{name}<" in driver}
    assert not untried
