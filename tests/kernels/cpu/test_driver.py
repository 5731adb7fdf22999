"""Native kernels in a process of their own: no read beyond a tensor, no undefined operation, NEON.

See tests/native/driver.cpp: operands end at a page that nobody may read. The sanitized and the
emulated programs hold all kernels once more, which takes minutes to compile.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest
import torch

import native_driver
from kernels.cpu import build, library
from kernels.ops.softcap import softcap
from native_driver import DRIVER, EXACT, Case, CaseGenerator, Op

EMULATOR = "qemu-aarch64-static"
ANGLES = {Op.ROPE, Op.RUN}  # cosines are the C library's, and those of two may differ
Program = list[str | Path]  # and what runs it

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the driver speaks to POSIX")


def compiler(name: str = "") -> build.Compiler:
    try:
        return build.find_compiler(name)
    except build.NoCompiler as error:
        pytest.skip(str(error))


def check(
    programs: list[Program], names: set[str], each: int, random: torch.Generator, folder: Path
) -> None:
    """Every instruction set of the programs, on one thread and three: right, and the same bits."""
    there = [
        (number, isa, name)
        for number, program in enumerate(programs)
        for isa, name in enumerate(native_driver.instruction_sets(program))
    ]
    assert names <= {name for _, _, name in there}
    for threads in (1, 3):
        cases = CaseGenerator(random).some(each)
        first: dict[tuple[int, int], bytes] = {}  # by case, and program where that counts
        for number, isa, name in there:
            results = native_driver.run(programs[number], isa, threads, cases, folder)
            for at, (case, found) in enumerate(zip(cases, results, strict=True)):
                wanted = first.setdefault((at, number if case.op in ANGLES else 0), found)
                assert found == wanted, f"{name} gives other bits: {case.name}"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with this machine's library."""
    if not library.available():
        pytest.skip(library.reason())
    path = tmp_path_factory.mktemp("driver") / "driver"
    return build.build_program(compiler(), DRIVER, path, library=build.current())


@pytest.mark.sweep
def test_no_kernel_touches_what_lies_around_its_operands(
    random: torch.Generator, tmp_path: Path
) -> None:
    program = build.build_program(compiler(), DRIVER, tmp_path / "driver", library=build.current())
    check([[program]], set(library.instruction_sets()), 1, random, tmp_path)


def test_a_kernel_that_reads_one_number_too_many_is_found(program: Path, tmp_path: Path) -> None:
    x = torch.ones(64)
    wanted = softcap(x.double(), 30.0)
    case = Case(Op.SOFTCAP, "one too many", (64, 30.0), (x,), wanted, EXACT)
    native_driver.run([program], 0, 1, [case], tmp_path)
    lying = dataclasses.replace(case, parameters=(65, 30.0))
    with pytest.raises(AssertionError, match="status -11 at one too many"):
        native_driver.run([program], 0, 1, [lying], tmp_path)


@pytest.mark.slow
def test_sanitizers_find_nothing(random: torch.Generator, tmp_path: Path) -> None:
    program = build.build_program(compiler(), DRIVER, tmp_path / "driver", checked=True)
    check([[program]], {"scalar"}, 6, random, tmp_path)


@pytest.mark.slow
def test_neon_is_right_under_an_emulator(
    program: Path, random: torch.Generator, tmp_path: Path
) -> None:
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        pytest.skip(f"there is no {EMULATOR} here")
    target = build.Target("aarch64", "linux")
    emulated = build.build_program(compiler("zig"), DRIVER, tmp_path / "driver", target=target)
    programs: list[Program] = [[program], [emulator, "-cpu", "max", emulated]]
    check(programs, {"i8mm", "neon", "scalar"}, 4, random, tmp_path)
    # A processor without the newer instructions never runs them.
    assert native_driver.instruction_sets([emulator, "-cpu", "cortex-a76", emulated]) == [
        "neon",
        "scalar",
    ]
    assert native_driver.instruction_sets([emulator, "-cpu", "cortex-a53", emulated]) == ["scalar"]
